//! Roles, bindings, and what they allow.

use std::sync::Arc;

use proctor_model::{AccessTarget, Bounds, Class, Namespace, Permissions, Role, RoleName, Scope, Subject};
use uuid::Uuid;

use super::business;
use crate::{App, Binding, BusinessSet, Refusal, Store, User};

fn name(text: &str) -> RoleName {
    text.parse().unwrap()
}

fn role(text: &str, classes: &[Class]) -> Role {
    Role { name: name(text), classes: classes.iter().copied().collect() }
}

fn subject(text: &str) -> Subject {
    text.parse().unwrap()
}

fn binding(number: u128, role: &str, whom: &str, scope: &str) -> Binding {
    Binding {
        id: Uuid::from_u128(number),
        role: name(role),
        subject: subject(whom),
        scope: scope.parse().unwrap(),
        bounds: Bounds::default(),
        created_at: 5,
    }
}

async fn bind(store: &dyn Store, number: u128, role: &str, whom: &str, scope: &str) {
    let id = store.put_binding(binding(number, role, whom, scope)).await.unwrap().unwrap();
    assert_eq!(id, Uuid::from_u128(number));
}

async fn may(store: &dyn Store, whom: &[&str]) -> Permissions {
    let subjects: Vec<_> = whom.iter().map(|whom| subject(whom)).collect();
    store.permissions(&subjects).await.unwrap().unwrap()
}

fn in_business(id: u64) -> AccessTarget<'static> {
    AccessTarget { business: Some(id), cloud: Some(0), namespace: None }
}

pub async fn roles_are_the_built_in_ones_and_then_those_by_name(store: Arc<dyn Store>) {
    let built_in = store.roles().await.unwrap();
    for role in [role("watch", &[]), role("night", &[Class::Admin]), role("night", &[Class::Operate])] {
        store.put_role(role).await.unwrap().unwrap();
    }

    let roles = store.roles().await.unwrap();

    assert_eq!(built_in, Role::built_in());
    assert_eq!(roles[..4], built_in);
    assert_eq!(roles[4..], [role("night", &[Class::Operate]), role("watch", &[])]);
}

pub async fn a_built_in_role_is_neither_changed_nor_deleted(store: Arc<dyn Store>) {
    bind(&*store, 1, "viewer", "user:a", "everything").await;

    let put = store.put_role(role("viewer", &Class::ALL)).await.unwrap();
    let deleted = store.delete_role(&name("viewer")).await.unwrap();

    assert_eq!(put, Err(Refusal::BuiltInRole(name("viewer"))));
    assert!(!deleted);
    assert_eq!(store.roles().await.unwrap(), Role::built_in());
    assert_eq!(store.bindings().await.unwrap().len(), 1);
}

pub async fn a_role_that_is_deleted_takes_its_bindings_along(store: Arc<dyn Store>) {
    store.put_role(role("night", &[Class::Read])).await.unwrap().unwrap();
    bind(&*store, 1, "night", "user:a", "everything").await;
    bind(&*store, 2, "viewer", "user:a", "cloud:1").await;

    let first = store.delete_role(&name("night")).await.unwrap();
    let second = store.delete_role(&name("night")).await.unwrap();

    assert_eq!((first, second), (true, false));
    assert_eq!(store.bindings().await.unwrap(), [binding(2, "viewer", "user:a", "cloud:1")]);
}

pub async fn bindings_are_read_back_oldest_first_and_deleted(store: Arc<dyn Store>) {
    store.put_business(business(3)).await.unwrap();
    let later = Binding { created_at: 9, ..binding(1, "owner", "app:job", "business:3") };
    let earlier = binding(2, "viewer", "user:张三", "namespace:网关");
    for binding in [later.clone(), earlier.clone()] {
        store.put_binding(binding).await.unwrap().unwrap();
    }

    let listed = store.bindings().await.unwrap();
    let first = store.delete_binding(later.id).await.unwrap();
    let second = store.delete_binding(later.id).await.unwrap();

    assert_eq!(listed, [earlier.clone(), later]);
    assert_eq!((first, second), (true, false));
    assert_eq!(store.bindings().await.unwrap(), [earlier]);
}

pub async fn what_is_given_twice_is_there_once(store: Arc<dyn Store>) {
    bind(&*store, 1, "viewer", "user:a", "everything").await;

    let again = store.put_binding(binding(2, "viewer", "user:a", "everything")).await.unwrap();

    assert_eq!(again, Ok(Uuid::from_u128(1)));
    assert_eq!(store.bindings().await.unwrap(), [binding(1, "viewer", "user:a", "everything")]);
}

pub async fn a_binding_that_names_nothing_is_refused(store: Arc<dyn Store>) {
    let no_role = store.put_binding(binding(1, "night", "user:a", "everything")).await.unwrap();
    let no_business = store.put_binding(binding(1, "viewer", "user:a", "business:3")).await.unwrap();
    let no_set = store.put_binding(binding(1, "viewer", "user:a", "set:4")).await.unwrap();

    assert_eq!(no_role, Err(Refusal::UnknownRole(name("night"))));
    assert_eq!(no_business, Err(Refusal::UnknownBusiness(3)));
    assert_eq!(no_set, Err(Refusal::UnknownBusinessSet(4)));
    assert!(store.bindings().await.unwrap().is_empty());
}

pub async fn permissions_are_those_of_all_subjects_together(store: Arc<dyn Store>) {
    for id in [1, 2, 3] {
        store.put_business(business(id)).await.unwrap();
    }
    store.put_role(role("night", &[Class::Operate])).await.unwrap().unwrap();
    bind(&*store, 1, "night", "app:job", "business:1").await;
    bind(&*store, 2, "viewer", "user:a", "business:2").await;
    bind(&*store, 3, "admin", "user:b", "everything").await;

    let both = may(&*store, &["app:job", "user:a"]).await;
    let other_kind = may(&*store, &["user:job", "app:a"]).await;

    assert!(both.allows(Class::Operate, &in_business(1)) && !both.allows(Class::Read, &in_business(1)));
    assert!(both.allows(Class::Read, &in_business(2)) && !both.allows(Class::Operate, &in_business(2)));
    assert!(!both.allows_anywhere(Class::Admin));
    assert_eq!(other_kind, Permissions::default());
    assert_eq!(may(&*store, &["user:b"]).await, Permissions::everything());
    assert_eq!(may(&*store, &[]).await, Permissions::default());
}

pub async fn a_binding_on_a_set_follows_its_members(store: Arc<dyn Store>) {
    for id in [1, 2] {
        store.put_business(business(id)).await.unwrap();
    }
    let set = |members: &[u64]| BusinessSet { id: 7, name: "s".to_owned(), members: members.iter().copied().collect() };
    store.put_business_set(set(&[1])).await.unwrap().unwrap();
    bind(&*store, 1, "operator", "user:a", "set:7").await;
    let before = may(&*store, &["user:a"]).await;

    store.put_business_set(set(&[2])).await.unwrap().unwrap();
    let after = may(&*store, &["user:a"]).await;

    assert!(before.allows(Class::Operate, &in_business(1)) && !before.allows(Class::Operate, &in_business(2)));
    assert!(!after.allows(Class::Operate, &in_business(1)) && after.allows(Class::Operate, &in_business(2)));
}

pub async fn what_was_given_does_not_come_back_with_the_name(store: Arc<dyn Store>) {
    let app =
        App { code: "job".to_owned(), secret_hash: "h".to_owned(), sealed_secret: None, trusted: false, created_at: 1 };
    let user = User { name: "a".to_owned(), created_at: 1, disabled: false };
    let set = BusinessSet { id: 7, name: "s".to_owned(), members: [1].into() };
    let put_all = async || {
        store.put_app(app.clone()).await.unwrap();
        store.create_user(user.clone()).await.unwrap().unwrap();
        store.put_business(business(1)).await.unwrap();
        store.put_business_set(set.clone()).await.unwrap().unwrap();
    };
    put_all().await;
    bind(&*store, 1, "admin", "app:job", "everything").await;
    bind(&*store, 2, "admin", "user:a", "everything").await;
    bind(&*store, 3, "admin", "user:b", "business:1").await;
    bind(&*store, 4, "admin", "user:b", "set:7").await;
    bind(&*store, 5, "admin", "user:b", "cloud:1").await;

    store.delete_app("job").await.unwrap();
    store.delete_user("a").await.unwrap();
    store.delete_business(1).await.unwrap();
    store.delete_business_set(7).await.unwrap();
    put_all().await;

    let left: Vec<Scope> = store.bindings().await.unwrap().into_iter().map(|binding| binding.scope).collect();
    assert_eq!(left, [Scope::Cloud(1)]);
}

pub async fn a_disabled_user_refuses_whoever_acts_in_their_name(store: Arc<dyn Store>) {
    bind(&*store, 1, "admin", "app:console", "everything").await;
    bind(&*store, 2, "viewer", "user:ana", "everything").await;
    store.create_user(User { name: "ana".to_owned(), created_at: 5, disabled: false }).await.unwrap().unwrap();
    let both = [subject("app:console"), subject("user:ana")];
    let before = store.permissions(&both).await.unwrap();

    store.disable_user("ana", true).await.unwrap();
    let refused = [store.permissions(&both).await.unwrap(), store.permissions(&both[1..]).await.unwrap()];
    let app = store.permissions(&[subject("app:console"), subject("app:ana")]).await.unwrap();
    store.disable_user("ana", false).await.unwrap();

    assert!(before.unwrap().allows_everywhere(Class::Admin));
    assert!(refused.iter().all(|answer| *answer == Err(Refusal::UserDisabled("ana".to_owned()))), "{refused:?}");
    assert!(app.unwrap().allows_everywhere(Class::Admin), "an app of the same name is somebody else");
    assert!(store.permissions(&both).await.unwrap().is_ok());
}

pub async fn a_name_that_was_disabled_stays_so_when_its_user_is_deleted(store: Arc<dyn Store>) {
    let user = |name: &str| User { name: name.to_owned(), created_at: 1, disabled: false };
    bind(&*store, 1, "admin", "app:console", "everything").await;
    for name in ["ana", "bob"] {
        store.create_user(user(name)).await.unwrap().unwrap();
    }
    store.disable_user("ana", true).await.unwrap();
    let acts_as = async |name: &str| {
        store.permissions(&[subject("app:console"), subject(&format!("user:{name}"))]).await.unwrap().is_ok()
    };

    assert!(store.delete_user("ana").await.unwrap() && store.delete_user("bob").await.unwrap());

    assert!(!acts_as("ana").await && acts_as("bob").await);
    store.create_user(user("ana")).await.unwrap().unwrap();
    assert!(acts_as("ana").await, "somebody has the name again");
    assert!(store.delete_user("ana").await.unwrap());
    assert!(acts_as("ana").await);
}

pub async fn a_binding_keeps_its_bounds_and_other_bounds_make_another_binding(store: Arc<dyn Store>) {
    let bounds = |user: &str| Bounds { users: [user.parse().unwrap()].into(), roots: ["/opt".parse().unwrap()].into() };
    let bounded =
        |number, user: &str| Binding { bounds: bounds(user), ..binding(number, "owner", "user:ana", "namespace:web") };
    let web: Namespace = "web".parse().unwrap();
    let target = AccessTarget { namespace: Some(&web), ..in_business(3) };

    let first = store.put_binding(bounded(1, "web")).await.unwrap().unwrap();
    let same = store.put_binding(bounded(2, "web")).await.unwrap().unwrap();
    let other = store.put_binding(bounded(3, "app")).await.unwrap().unwrap();
    let only_bounded = may(&*store, &["user:ana"]).await;
    bind(&*store, 4, "owner", "user:ana", "namespace:web").await;

    assert_eq!((first, same, other), (Uuid::from_u128(1), Uuid::from_u128(1), Uuid::from_u128(3)));
    let kept: Vec<Bounds> = store.bindings().await.unwrap().into_iter().map(|binding| binding.bounds).collect();
    assert_eq!(kept, [bounds("web"), bounds("app"), Bounds::default()]);
    assert!(only_bounded.allows(Class::Register, &target) && !only_bounded.registers_unbounded(&target));
    assert!(may(&*store, &["user:ana"]).await.registers_unbounded(&target));
}
