//! Apps and secrets.

use std::sync::Arc;

use proctor_model::{Bounds, Scope, Subject};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{App, Binding, Refusal, Store};

fn app(code: &str, secret_hash: &str) -> App {
    App {
        code: code.to_owned(),
        secret_hash: secret_hash.to_owned(),
        sealed_secret: Some(vec![0, 255]),
        trusted: false,
        created_at: 5,
    }
}

pub async fn an_app_is_read_back_and_replaced_by_its_code(store: Arc<dyn Store>) {
    store.put_app(app("job", "one")).await.unwrap();
    let first = store.app("job").await.unwrap();

    let replacement = App { trusted: true, created_at: 6, sealed_secret: None, ..app("job", "two") };
    store.put_app(replacement.clone()).await.unwrap();

    assert_eq!(first, Some(app("job", "one")));
    assert_eq!(store.app("job").await.unwrap(), Some(replacement));
}

fn binding(number: u128, role: &str) -> Binding {
    let (id, role) = (Uuid::from_u128(number), role.parse().unwrap());
    Binding {
        id,
        role,
        subject: Subject::App("job".to_owned()),
        scope: Scope::Everything,
        bounds: Bounds::default(),
        created_at: 5,
    }
}

pub async fn a_new_app_comes_with_its_bindings_or_not_at_all(store: Arc<dyn Store>) {
    let refused = store.create_app(app("job", "one"), &[binding(1, "viewer"), binding(2, "nobody")]).await.unwrap();
    let nothing = (store.apps().await.unwrap(), store.bindings().await.unwrap());
    store.create_app(app("job", "one"), &[binding(1, "viewer")]).await.unwrap().unwrap();
    let again = store.create_app(app("job", "two"), &[binding(3, "operator")]).await.unwrap();

    assert_eq!(refused, Err(Refusal::UnknownRole("nobody".parse().unwrap())));
    assert_eq!(nothing, (Vec::new(), Vec::new()));
    assert_eq!(again, Err(Refusal::AppExists("job".to_owned())));
    assert_eq!(store.apps().await.unwrap(), [app("job", "one")]);
    assert_eq!(store.bindings().await.unwrap(), [binding(1, "viewer")]);
}

pub async fn a_code_is_given_to_one_app_however_many_ask_at_once(store: Arc<dyn Store>) {
    let mut callers = JoinSet::new();
    for number in 0..10 {
        let store = Arc::clone(&store);
        callers.spawn(async move { store.create_app(app("job", &number.to_string()), &[]).await.unwrap() });
    }

    let answers = callers.join_all().await;

    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(store.apps().await.unwrap().len(), 1);
}

pub async fn apps_are_listed_by_code_and_deleted(store: Arc<dyn Store>) {
    for code in ["job", "gsekit"] {
        store.put_app(app(code, "one")).await.unwrap();
    }

    let listed = store.apps().await.unwrap();
    let first = store.delete_app("job").await.unwrap();
    let second = store.delete_app("job").await.unwrap();

    assert_eq!(listed, [app("gsekit", "one"), app("job", "one")]);
    assert_eq!((first, second), (true, false));
    assert_eq!(store.apps().await.unwrap(), [app("gsekit", "one")]);
    assert_eq!(store.app("job").await.unwrap(), None);
}

pub async fn the_hash_of_an_app_is_renewed_only_while_it_is_the_old_one(store: Arc<dyn Store>) {
    store.put_app(app("job", "one")).await.unwrap();

    let renewed = store.renew_app_hash("job", "one", "two").await.unwrap();
    let late = store.renew_app_hash("job", "one", "three").await.unwrap();
    let gone = store.renew_app_hash("gsekit", "one", "two").await.unwrap();

    assert_eq!((renewed, late, gone), (true, false, false));
    assert_eq!(store.app("job").await.unwrap(), Some(app("job", "two")));
}

pub async fn a_new_secret_changes_nothing_else_of_an_app(store: Arc<dyn Store>) {
    store.create_app(App { trusted: true, ..app("job", "one") }, &[binding(1, "viewer")]).await.unwrap().unwrap();

    let changed = store.set_app_secret("job", "two".to_owned(), None).await.unwrap();
    let unknown = store.set_app_secret("gsekit", "two".to_owned(), None).await.unwrap();

    let expected = App { trusted: true, sealed_secret: None, ..app("job", "two") };
    assert_eq!((changed, unknown), (Some(expected.clone()), None));
    assert_eq!(store.apps().await.unwrap(), [expected]);
    assert_eq!(store.bindings().await.unwrap(), [binding(1, "viewer")]);
}

pub async fn an_unknown_app_is_none(store: Arc<dyn Store>) {
    store.put_app(app("job", "one")).await.unwrap();

    assert_eq!(store.app("JOB").await.unwrap(), None);
    assert_eq!(store.secret("ca").await.unwrap(), None);
}

pub async fn the_first_secret_wins(store: Arc<dyn Store>) {
    let first = store.secret_or_insert("ca", vec![0, 1]).await.unwrap();
    let second = store.secret_or_insert("ca", vec![2]).await.unwrap();

    assert_eq!(first, [0, 1]);
    assert_eq!(second, [0, 1]);
    assert_eq!(store.secret("ca").await.unwrap(), Some(vec![0, 1]));
}

pub async fn a_secret_is_replaced_only_by_who_knows_it(store: Arc<dyn Store>) {
    store.secret_or_insert("ca", vec![1]).await.unwrap();
    let replace = |old, new| store.replace_secret("ca", vec![old], vec![new]);

    assert!(!replace(2, 3).await.unwrap());
    assert!(replace(1, 2).await.unwrap());
    assert!(!replace(1, 3).await.unwrap(), "somebody else was faster");

    assert_eq!(store.secret("ca").await.unwrap(), Some(vec![2]));
    assert!(!store.replace_secret("none", vec![], vec![1]).await.unwrap());
}

pub async fn a_control_plane_begins_with_the_first_epoch(store: Arc<dyn Store>) {
    assert_eq!(store.control_epoch().await.unwrap(), 1);
}

pub async fn of_many_first_secrets_all_see_the_same(store: Arc<dyn Store>) {
    let mut callers = JoinSet::new();
    for number in 0..20_u8 {
        let store = Arc::clone(&store);
        callers.spawn(async move { store.secret_or_insert("ca", vec![number]).await.unwrap() });
    }

    let mut seen = callers.join_all().await;

    seen.dedup();
    assert_eq!(seen.len(), 1);
    assert_eq!(store.secret("ca").await.unwrap(), seen.pop());
}
