//! Users and their tokens.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::{Refusal, SESSIONS_PER_USER_MAX, Store, TokenKind, User, UserToken};

fn user(name: &str) -> User {
    User { name: name.to_owned(), created_at: 5, disabled: false }
}

fn token(id: &str, user: &str) -> UserToken {
    UserToken {
        id: id.to_owned(),
        user: user.to_owned(),
        secret_hash: "hash".to_owned(),
        note: "for the night shift".to_owned(),
        created_at: 5,
        expires_at: Some(9),
        kind: TokenKind::Call,
    }
}

pub async fn users_are_listed_by_name_and_disabled(store: Arc<dyn Store>) {
    for name in ["b", "张三", "a"] {
        store.create_user(user(name)).await.unwrap().unwrap();
    }

    let disabled = store.disable_user("b", true).await.unwrap();

    assert_eq!(disabled, Some(User { disabled: true, ..user("b") }));
    assert_eq!(store.users().await.unwrap(), [user("a"), User { disabled: true, ..user("b") }, user("张三")]);
    assert_eq!(store.disable_user("b", false).await.unwrap(), Some(user("b")));
    assert_eq!(store.disable_user("c", true).await.unwrap(), None);
    assert_eq!(store.user("张三").await.unwrap(), Some(user("张三")));
    assert_eq!(store.user("c").await.unwrap(), None);
}

pub async fn a_name_is_given_to_one_user_however_many_ask_at_once(store: Arc<dyn Store>) {
    let mut callers = JoinSet::new();
    for number in 0..10 {
        let store = Arc::clone(&store);
        let user = User { created_at: number, ..user("a") };
        callers.spawn(async move { store.create_user(user).await.unwrap() });
    }

    let answers = callers.join_all().await;

    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert!(answers.iter().all(|answer| matches!(answer, Ok(()) | Err(Refusal::UserExists(_)))), "{answers:?}");
    assert_eq!(store.users().await.unwrap().len(), 1);
}

pub async fn a_name_that_was_disabled_when_its_user_was_removed_stays_so_until_somebody_has_it(store: Arc<dyn Store>) {
    for name in ["a", "b", "c", "d"] {
        store.create_user(user(name)).await.unwrap().unwrap();
    }
    for name in ["a", "b", "d"] {
        store.disable_user(name, true).await.unwrap();
    }
    for name in ["b", "c", "d"] {
        assert!(store.delete_user(name).await.unwrap());
    }
    store.create_user(user("d")).await.unwrap().unwrap();

    assert_eq!(store.disabled_names().await.unwrap(), ["a", "b"]);
}

pub async fn a_user_that_is_disabled_keeps_the_tokens_and_a_deleted_one_does_not(store: Arc<dyn Store>) {
    store.create_user(user("a")).await.unwrap().unwrap();
    store.put_user_token(token("1", "a")).await.unwrap().unwrap();
    store.disable_user("a", true).await.unwrap();
    let kept = store.user_token("1").await.unwrap();

    let first = store.delete_user("a").await.unwrap();
    let second = store.delete_user("a").await.unwrap();

    assert_eq!(kept, Some(token("1", "a")));
    assert_eq!((first, second), (true, false));
    store.create_user(user("a")).await.unwrap().unwrap();
    assert_eq!(store.user_token("1").await.unwrap(), None);
}

pub async fn tokens_are_listed_of_one_user_or_of_all_oldest_first(store: Arc<dyn Store>) {
    for name in ["a", "b"] {
        store.create_user(user(name)).await.unwrap().unwrap();
    }
    let younger = UserToken { created_at: 6, expires_at: None, ..token("1", "a") };
    for token in [younger.clone(), token("2", "a"), token("3", "b")] {
        store.put_user_token(token).await.unwrap().unwrap();
    }

    assert_eq!(store.user_tokens(None).await.unwrap(), [token("2", "a"), token("3", "b"), younger.clone()]);
    assert_eq!(store.user_tokens(Some("a")).await.unwrap(), [token("2", "a"), younger]);
    assert!(store.user_tokens(Some("c")).await.unwrap().is_empty());
}

pub async fn a_token_of_an_unknown_user_is_refused(store: Arc<dyn Store>) {
    let answer = store.put_user_token(token("1", "a")).await.unwrap();

    assert_eq!(answer, Err(Refusal::UnknownUser("a".to_owned())));
    assert_eq!(store.user_token("1").await.unwrap(), None);
}

pub async fn a_user_token_that_is_deleted_is_gone(store: Arc<dyn Store>) {
    store.create_user(user("a")).await.unwrap().unwrap();
    store.put_user_token(token("1", "a")).await.unwrap().unwrap();

    let first = store.delete_user_token("1").await.unwrap();
    let second = store.delete_user_token("1").await.unwrap();

    assert_eq!((first, second), (true, false));
    assert_eq!(store.user_token("1").await.unwrap(), None);
}

fn session(id: &str, user: &str, parent: Option<&str>) -> UserToken {
    UserToken { kind: TokenKind::Session { parent: parent.map(str::to_owned) }, ..token(id, user) }
}

pub async fn a_session_ends_with_the_token_that_opened_it(store: Arc<dyn Store>) {
    store.create_user(user("a")).await.unwrap().unwrap();
    store.put_user_token(token("1", "a")).await.unwrap().unwrap();
    let (child, other) = (session("2", "a", Some("1")), session("3", "a", None));
    for session in [child.clone(), other.clone()] {
        store.put_user_token(session).await.unwrap().unwrap();
    }
    let kept = store.user_token("2").await.unwrap();

    store.delete_user_token("1").await.unwrap();

    assert_eq!(kept, Some(child));
    assert_eq!(store.user_tokens(Some("a")).await.unwrap(), [other]);
    let orphan = store.put_user_token(session("4", "a", Some("1"))).await.unwrap();
    assert_eq!(orphan, Err(Refusal::UnknownToken("1".to_owned())));
    assert_eq!(store.user_token("4").await.unwrap(), None);
}

pub async fn a_user_keeps_the_newest_sessions_and_every_token(store: Arc<dyn Store>) {
    for name in ["a", "b"] {
        store.create_user(user(name)).await.unwrap().unwrap();
    }
    let others = [token("0", "a"), session("b", "b", None)];
    for token in others.clone() {
        store.put_user_token(token).await.unwrap().unwrap();
    }
    let sessions: Vec<UserToken> = (0..=SESSIONS_PER_USER_MAX)
        .map(|number| UserToken { created_at: 6 + i64::from(number), ..session(&format!("s{number:02}"), "a", None) })
        .collect();

    for session in &sessions {
        store.put_user_token(session.clone()).await.unwrap().unwrap();
    }

    assert_eq!(store.user_tokens(None).await.unwrap(), [&others[..], &sessions[1..]].concat());
}

pub async fn a_new_password_closes_the_users_sessions_and_no_others(store: Arc<dyn Store>) {
    for name in ["a", "b"] {
        store.create_user(user(name)).await.unwrap().unwrap();
    }
    for token in [token("1", "a"), session("2", "a", None), session("3", "b", None)] {
        store.put_user_token(token).await.unwrap().unwrap();
    }

    let known = store.set_user_password("a", Some("hash".to_owned()), None, 7).await.unwrap();
    let unknown = store.set_user_password("c", Some("hash".to_owned()), None, 7).await.unwrap();

    assert_eq!((known, unknown), (Ok(()), Err(Refusal::UnknownUser("c".to_owned()))));
    assert_eq!(password(&*store, "a").await.as_deref(), Some("hash"));
    assert_eq!(store.user_tokens(None).await.unwrap(), [token("1", "a"), session("3", "b", None)]);
    store.set_user_password("a", None, None, 8).await.unwrap().unwrap();
    assert_eq!(password(&*store, "a").await, None);
}

async fn password(store: &dyn Store, name: &str) -> Option<String> {
    store.user_credential(name).await.unwrap().unwrap().password_hash
}

pub async fn a_password_is_replaced_only_while_the_expected_credential_is_the_present_one(store: Arc<dyn Store>) {
    store.create_user(user("a")).await.unwrap().unwrap();
    let set =
        async |hash: &str, expected| store.set_user_password("a", Some(hash.to_owned()), expected, 7).await.unwrap();
    let first = store.user_credential("a").await.unwrap();

    let changed = set("one", first.clone()).await;
    let again = set("two", first).await;
    let second = store.user_credential("a").await.unwrap();
    store.disable_user("a", true).await.unwrap();
    store.disable_user("a", false).await.unwrap();
    let after_disabling = set("three", second).await;

    let refused = || Err(Refusal::CredentialChanged("a".to_owned()));
    assert_eq!((changed, again, after_disabling), (Ok(()), refused(), refused()));
    assert_eq!(password(&*store, "a").await.as_deref(), Some("one"));
}

pub async fn a_session_is_kept_only_while_what_it_rests_on_holds(store: Arc<dyn Store>) {
    let changed = || Err(Refusal::CredentialChanged("a".to_owned()));
    let disabled = || Err(Refusal::UserDisabled("a".to_owned()));
    let open = async |id: &str, credential| store.put_session(session(id, "a", None), credential).await.unwrap();
    let present = async || store.user_credential("a").await.unwrap();
    let set_password = async |hash: &str| {
        store.set_user_password("a", Some(hash.to_owned()), None, 7).await.unwrap().unwrap();
    };
    assert_eq!(present().await, None);
    store.create_user(user("a")).await.unwrap().unwrap();
    let without_password = present().await;
    set_password("old").await;
    let old = present().await;
    assert_eq!(open("1", old.clone()).await, Ok(()));

    set_password("new").await;
    assert_eq!((open("2", old.clone()).await, open("3", without_password).await), (changed(), changed()));
    set_password("old").await;
    assert_eq!(open("4", old).await, changed(), "the same hash again is another credential");

    let before_disabling = present().await;
    store.disable_user("a", true).await.unwrap();
    assert_eq!((open("5", before_disabling.clone()).await, open("6", None).await), (disabled(), disabled()));
    store.disable_user("a", false).await.unwrap();
    assert_eq!(open("7", before_disabling).await, changed());

    let before_removal = present().await;
    store.delete_user("a").await.unwrap();
    store.create_user(user("a")).await.unwrap().unwrap();
    for _ in 0..before_removal.as_ref().unwrap().version {
        set_password("old").await;
    }
    assert_eq!(open("8", before_removal).await, changed());
    assert!(store.user_tokens(None).await.unwrap().is_empty());
}

pub async fn disabling_a_user_closes_the_sessions(store: Arc<dyn Store>) {
    for name in ["a", "b"] {
        store.create_user(user(name)).await.unwrap().unwrap();
    }
    for token in [token("1", "a"), session("2", "a", None), session("3", "b", None)] {
        store.put_user_token(token).await.unwrap().unwrap();
    }

    store.disable_user("a", true).await.unwrap();
    store.disable_user("a", false).await.unwrap();

    assert_eq!(store.user_tokens(None).await.unwrap(), [token("1", "a"), session("3", "b", None)]);
}
