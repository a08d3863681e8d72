use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

use super::*;

fn class() -> impl Strategy<Value = Class> {
    proptest::sample::select(Class::ALL.to_vec())
}

fn namespace() -> impl Strategy<Value = Namespace> {
    proptest::sample::select(vec!["web", "db", "网关"]).prop_map(|text| text.parse().unwrap())
}

/// Few numbers, so that scopes and targets often coincide.
fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![
        1 => Just(Scope::Everything),
        3 => (0..4_u64).prop_map(Scope::Business),
        3 => (0..4_u64).prop_map(Scope::BusinessSet),
        3 => namespace().prop_map(Scope::Namespace),
        3 => (0..3_u32).prop_map(Scope::Cloud),
    ]
}

fn grant() -> impl Strategy<Value = Grant> {
    (vec(class(), 0..4), scope()).prop_map(|(classes, scope)| Grant {
        classes: classes.into(),
        scope,
        bounds: Bounds::default(),
    })
}

fn sets() -> impl Strategy<Value = BTreeMap<u64, BTreeSet<u64>>> {
    btree_map(0..4_u64, btree_set(0..4_u64, 0..3), 0..4)
}

prop_compose! {
    fn target()(business in proptest::option::of(0..5_u64), cloud in 0..4_u32, namespace in proptest::option::of(namespace()))
        -> (Option<u64>, u32, Option<Namespace>) {
        (business, cloud, namespace)
    }
}

fn at((business, cloud, namespace): &(Option<u64>, u32, Option<Namespace>)) -> AccessTarget<'_> {
    AccessTarget { business: *business, cloud: Some(*cloud), namespace: namespace.as_ref() }
}

/// The meaning of a scope, written a second time without the unions of [`ScopeSet`].
fn covers(scope: &Scope, sets: &BTreeMap<u64, BTreeSet<u64>>, target: &AccessTarget<'_>) -> bool {
    match scope {
        Scope::Everything => true,
        Scope::Business(id) => target.business == Some(*id),
        Scope::BusinessSet(id) => match (sets.get(id), target.business) {
            (Some(members), Some(business)) => members.contains(&business),
            _ => false,
        },
        Scope::Namespace(namespace) => target.namespace == Some(namespace),
        Scope::Cloud(id) => target.cloud == Some(*id),
    }
}

proptest! {
    #[test]
    fn a_place_is_allowed_exactly_where_a_grant_covers_it(
        grants in vec(grant(), 0..6), sets in sets(), class in class(), target in target()
    ) {
        let permissions = Permissions::new(&grants, &sets);

        let expected = grants.iter().any(|grant| grant.classes.contains(class) && covers(&grant.scope, &sets, &at(&target)));
        prop_assert_eq!(permissions.allows(class, &at(&target)), expected);
    }

    #[test]
    fn a_further_grant_never_takes_away(
        grants in vec(grant(), 0..6), further in grant(), sets in sets(), class in class(), target in target()
    ) {
        let before = Permissions::new(&grants, &sets);
        let after = Permissions::new(grants.iter().chain([&further]), &sets);

        prop_assert!(!before.allows(class, &at(&target)) || after.allows(class, &at(&target)));
        prop_assert!(!before.allows_anywhere(class) || after.allows_anywhere(class));
        prop_assert!(!before.allows_everywhere(class) || after.allows_everywhere(class));
    }

    #[test]
    fn everything_allows_what_any_scope_allows(grants in vec(grant(), 0..6), sets in sets(), class in class(), target in target()) {
        let some = Permissions::new(&grants, &sets);

        prop_assert!(Permissions::everything().allows(class, &at(&target)));
        prop_assert!(Permissions::everything().allows_everywhere(class));
        prop_assert!(!some.allows_everywhere(class) || some.allows(class, &at(&target)));
        prop_assert!(!some.allows(class, &at(&target)) || some.allows_anywhere(class));
    }

    #[test]
    fn a_set_is_the_union_of_its_members(classes in vec(class(), 0..4), sets in sets(), id in 0..4_u64) {
        let classes = Classes::from(classes);
        let of_members: Vec<Grant> = sets
            .get(&id)
            .into_iter()
            .flatten()
            .map(|member| Grant { classes, scope: Scope::Business(*member), bounds: Bounds::default() })
            .collect();

        let of_set = Permissions::new([&Grant { classes, scope: Scope::BusinessSet(id), bounds: Bounds::default() }], &sets);

        prop_assert_eq!(of_set, Permissions::new(&of_members, &BTreeMap::new()));
    }

    #[test]
    fn scopes_survive_their_text(scope in scope()) {
        prop_assert_eq!(scope.to_string().parse::<Scope>().unwrap(), scope);
    }

    #[test]
    fn classes_survive_their_list(list in vec(class(), 0..8)) {
        let classes = Classes::from(list.clone());

        let json = serde_json::to_string(&classes).unwrap();

        prop_assert_eq!(serde_json::from_str::<Classes>(&json).unwrap(), classes);
        prop_assert!(list.iter().all(|class| classes.contains(*class)));
        prop_assert!(classes.iter().all(|class| list.contains(&class)));
    }
}

#[test]
fn classes_do_not_imply_each_other() {
    for granted in Class::ALL {
        let grant =
            Grant { classes: [granted].into_iter().collect(), scope: Scope::Everything, bounds: Bounds::default() };

        let permissions = Permissions::new([&grant], &BTreeMap::new());

        for class in Class::ALL {
            assert_eq!(permissions.allows_everywhere(class), class == granted, "{granted} {class}");
        }
    }
}

#[test]
fn an_empty_set_is_nowhere() {
    let grant =
        Grant { classes: Class::ALL.into_iter().collect(), scope: Scope::BusinessSet(2), bounds: Bounds::default() };

    let permissions = Permissions::new([&grant], &BTreeMap::from([(2, BTreeSet::new())]));

    assert!(!permissions.allows_anywhere(Class::Read));
}

#[test]
fn bad_scopes_and_subjects_are_refused_by_name() {
    for bad in ["", "all", "business", "business:x", "business:-1", "cloud:4294967296", "namespace:", "namespace:a:b"] {
        let error = bad.parse::<Scope>().unwrap_err();
        assert!(error.field.starts_with("scope"), "{bad}: {error}");
    }
    for bad in ["", "app", "app:", "group:x", "user: ", "user:a\nb"] {
        assert_eq!(bad.parse::<Subject>().unwrap_err().field, "subject", "{bad}");
    }
}

#[test]
fn subjects_survive_their_text_even_with_colons() {
    for text in ["app:bk_job", "user:张三", "user:a:b"] {
        assert_eq!(text.parse::<Subject>().unwrap().to_string(), text);
    }
}

#[test]
fn names_of_roles_are_plain_words() {
    assert!("night-shift_2".parse::<RoleName>().is_ok());
    for bad in ["", "Admin", "a b", "a:b", "值班", &"x".repeat(65)] {
        assert_eq!(bad.parse::<RoleName>().unwrap_err().field, "role", "{bad}");
    }
}

#[test]
fn the_built_in_roles_are_legal_and_each_holds_more_than_the_one_before() {
    let roles = Role::built_in();

    for role in &roles {
        assert_eq!(role.name.as_str().parse::<RoleName>().as_ref(), Ok(&role.name));
    }
    for pair in roles.windows(2) {
        assert!(pair[0].classes.iter().all(|class| pair[1].classes.contains(class)));
        assert_ne!(pair[0].classes, pair[1].classes);
    }
    assert!(Class::ALL.iter().all(|class| roles[3].classes.contains(*class)));
}
