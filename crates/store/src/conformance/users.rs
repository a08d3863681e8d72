//! Users and their tokens.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::{Refusal, Store, User, UserToken};

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
