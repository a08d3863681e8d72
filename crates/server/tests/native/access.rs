//! Apps, users, roles and bindings.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use proctor_model::Class;
use proctor_server::admin;
use proctor_server::api::native;
use serde_json::{Value, json};

use crate::support::{World, column, error};

#[tokio::test]
async fn an_app_is_made_once_gets_new_secrets_and_goes() {
    let world = World::new().await;

    let (made, app) = world.post("/apps", json!({ "code": "second", "trusted": true })).await;
    let (twice, _) = world.post("/apps", json!({ "code": "second" })).await;
    let (_, rotated) = world.post("/apps/second/secret", Value::Null).await;
    let old = app["secret"].as_str().unwrap();
    let new = rotated["secret"].as_str().unwrap();
    let (with_old, _) = world.call_as("second", old, Method::GET, "/apps", Value::Null).await;
    let (with_new, list) = world.call_as("second", new, Method::GET, "/apps", Value::Null).await;
    let (itself, _) = world.delete("/apps/boss").await;
    let (gone, _) = world.delete("/apps/second").await;
    let (after, _) = world.call_as("second", new, Method::GET, "/apps", Value::Null).await;

    assert_eq!((made, twice), (StatusCode::CREATED, StatusCode::CONFLICT));
    assert_eq!((with_old, with_new), (StatusCode::UNAUTHORIZED, StatusCode::OK));
    assert_eq!(column(&list["apps"], "code"), ["boss", "second"]);
    assert!(!list.to_string().contains(new));
    assert_eq!(itself, StatusCode::CONFLICT);
    assert_eq!((gone, after), (StatusCode::OK, StatusCode::UNAUTHORIZED));
    assert_eq!(world.delete("/apps/second").await.0, StatusCode::NOT_FOUND);
}

/// Who may do it there, each once.
async fn who_may(world: &World, query: &str) -> Vec<String> {
    let grants = world.got(&format!("/access/grants?{query}")).await["grants"].clone();
    let subjects = column(&grants, "subject");
    let people = subjects.into_iter().map(|subject| subject.as_str().unwrap().to_owned());
    people.filter(|subject| subject.starts_with("user:")).collect()
}

#[tokio::test]
async fn who_may_operate_a_process_is_told_by_each_scope_that_it_lies_in() {
    let world = World::new().await;
    world.put("/businesses/2", json!({ "name": "shop" })).await;
    world.put("/business-sets/1", json!({ "name": "all shops", "members": [2] })).await;
    world.put("/hosts/placements", json!({ "hosts": ["10.0.0.1"], "business": 2 })).await;
    for (user, scope) in [
        ("area", "cloud:0"),
        ("biz", "business:2"),
        ("far", "cloud:7"),
        ("set", "set:1"),
        ("space", "namespace:web"),
        ("top", "everything"),
    ] {
        world.post("/users", json!({ "name": user })).await;
        world.post("/bindings", json!({ "role": "operator", "subject": format!("user:{user}"), "scope": scope })).await;
    }
    let bounded = json!({ "role": "owner", "subject": "user:far", "scope": "namespace:db", "allow_users": ["db"] });
    world.post("/bindings", bounded).await;
    world.put("/users/biz", json!({ "disabled": true })).await;

    let on_process = who_may(&world, "class=operate&namespace=web&host=10.0.0.1").await;
    let on_host = who_may(&world, "class=operate&host=agent-1").await;
    let of_area = who_may(&world, "class=operate&business=9&cloud=7").await;
    let on_everything = who_may(&world, "class=operate&everywhere=true").await;
    let of_one = world.got("/access/grants?subject=user:far").await["grants"].clone();
    let of_biz = world.got("/access/grants?subject=user:biz&class=read").await["grants"].clone();

    assert_eq!(on_process, ["user:area", "user:biz", "user:set", "user:space", "user:top"]);
    assert_eq!(on_host, ["user:area", "user:biz", "user:set", "user:top"]);
    assert_eq!(
        (of_area, on_everything),
        (vec!["user:far".to_owned(), "user:top".to_owned()], vec!["user:top".to_owned()])
    );
    assert_eq!(column(&of_one, "class"), ["read", "operate", "register", "limits", "read", "operate"], "{of_one}");
    let register = of_one.as_array().unwrap().iter().find(|grant| grant["class"] == "register").unwrap();
    assert_eq!((&register["scope"], &register["allow_users"]), (&json!("namespace:db"), &json!(["db"])));
    assert_eq!((of_biz.as_array().unwrap().len(), &of_biz[0]["disabled"]), (1, &json!(true)));
    // The name stays disabled when its user is removed.
    world.delete("/users/biz").await;
    world.post("/bindings", json!({ "role": "viewer", "subject": "user:biz", "scope": "everything" })).await;
    let of_removed = world.got("/access/grants?subject=user:biz&class=read").await["grants"].clone();
    assert_eq!((of_removed.as_array().unwrap().len(), &of_removed[0]["disabled"]), (1, &json!(true)));
    for (query, field) in [
        ("class=fly", "class"),
        ("subject=ana", "subject"),
        ("host=10.0.0.1&cloud=0", "host"),
        ("everywhere=true&cloud=0", "everywhere"),
    ] {
        let (status, answer) = world.get(&format!("/access/grants?{query}")).await;
        assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, field), "{answer}");
    }
    assert_eq!(world.get("/access/grants?host=10.9.9.9").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_new_secret_gives_a_trusted_app_no_right_that_was_taken_from_it() {
    let world = World::new().await;
    world.post("/apps", json!({ "code": "second", "trusted": true })).await;
    let binding = world.got("/bindings?subject=app:second").await["bindings"][0]["id"].clone();
    world.delete(&format!("/bindings/{}", binding.as_str().unwrap())).await;
    let created_at = world.store.app("second").await.unwrap().unwrap().created_at;

    let (status, rotated) = world.post("/apps/second/secret", Value::Null).await;

    let secret = rotated["secret"].as_str().unwrap();
    let (who, answer) = world.call_as("second", secret, Method::GET, "/whoami", Value::Null).await;
    assert_eq!((status, &rotated["trusted"]), (StatusCode::OK, &json!(true)));
    assert_eq!((who, answer), (StatusCode::OK, json!({ "app": "second", "user": "admin", "allowed": [] })));
    assert_eq!(world.got("/bindings?subject=app:second").await, json!({ "bindings": [] }));
    assert_eq!(world.store.app("second").await.unwrap().unwrap().created_at, created_at);
    assert_eq!(world.post("/apps/nobody/secret", Value::Null).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_app_is_made_with_the_bounds_of_its_roles() {
    let world = World::new().await;
    let role = |user: &str| json!({ "role": "owner", "scope": "namespace:web", "allow_users": [user], "allow_roots": ["/opt/web"] });

    let (bad, answer) = world.post("/apps", json!({ "code": "job", "roles": [role(" ")] })).await;
    let (made, _) = world.post("/apps", json!({ "code": "job", "roles": [role("web")] })).await;

    assert_eq!((bad, error(&answer).1), (StatusCode::BAD_REQUEST, "roles[0].allow_users[0]"), "{answer}");
    assert_eq!(made, StatusCode::CREATED);
    let bindings = world.got("/bindings?subject=app:job").await["bindings"].clone();
    assert_eq!((&bindings[0]["allow_users"], &bindings[0]["allow_roots"]), (&json!(["web"]), &json!(["/opt/web"])));
    let entry = world.got("/audit?action=create_app").await["entries"][0]["targets"][0].clone();
    assert!(entry.as_str().unwrap().ends_with("within users web; roots /opt/web"), "{entry}");
}

#[tokio::test]
async fn an_app_gets_its_roles_at_once_or_is_not_made() {
    let world = World::new().await;
    world.put("/businesses/3", json!({ "name": "web" })).await;
    let app = |scope: &str| json!({ "code": "job", "roles": [{ "role": "operator", "scope": scope }] });

    let (unknown, _) = world.post("/apps", app("business:4")).await;
    let (bad, answer) = world.post("/apps", app("everywhere")).await;
    let none = world.got("/apps").await;
    let (made, _) = world.post("/apps", app("business:3")).await;
    let bindings = world.got("/bindings?subject=app:job").await;

    assert_eq!((unknown, bad, error(&answer).1), (StatusCode::NOT_FOUND, StatusCode::BAD_REQUEST, "roles[0].scope"));
    assert_eq!(column(&none["apps"], "code"), ["boss"]);
    assert_eq!(made, StatusCode::CREATED);
    assert_eq!(column(&bindings["bindings"], "scope"), ["business:3"]);
}

#[tokio::test]
async fn roles_are_made_and_changed_but_not_those_built_in() {
    let world = World::new().await;

    let (made, role) = world.put("/roles/on-call", json!({ "classes": ["operate", "read"] })).await;
    let (built_in, _) = world.put("/roles/viewer", json!({ "classes": ["admin"] })).await;
    let (bad, answer) = world.put("/roles/x", json!({ "classes": ["read", "dance"] })).await;
    let (name, _) = world.put("/roles/On%20Call", json!({ "classes": ["read"] })).await;
    let list = world.got("/roles").await;
    let (gone, _) = world.delete("/roles/on-call").await;
    let (stays, _) = world.delete("/roles/viewer").await;

    assert_eq!((made, &role["classes"]), (StatusCode::OK, &json!(["read", "operate"])));
    assert_eq!((built_in, bad, error(&answer).1), (StatusCode::CONFLICT, StatusCode::BAD_REQUEST, "classes[1]"));
    assert_eq!(name, StatusCode::BAD_REQUEST);
    assert_eq!(column(&list["roles"], "name"), ["viewer", "operator", "owner", "admin", "on-call"]);
    assert_eq!(column(&list["roles"], "built_in"), [true, true, true, true, false]);
    assert_eq!((gone, stays), (StatusCode::OK, StatusCode::CONFLICT));
}

#[tokio::test]
async fn a_binding_is_made_once_and_taken_away() {
    let world = World::new().await;
    let body = json!({ "role": "viewer", "subject": "user:张三", "scope": "namespace:web" });

    let (made, first) = world.post("/bindings", body.clone()).await;
    let (_, second) = world.post("/bindings", body).await;
    let (no_role, _) = world.post("/bindings", json!({ "role": "none", "subject": "app:a", "scope": "cloud:1" })).await;
    let (bad, answer) = world.post("/bindings", json!({ "role": "viewer", "subject": "a", "scope": "cloud:1" })).await;
    let large = json!({ "role": "viewer", "subject": "app:a", "scope": "business:9223372036854775808" });
    assert_eq!(error(&world.post("/bindings", large).await.1).1, "scope");
    let path = format!("/bindings/{}", first["id"].as_str().unwrap());
    let (gone, _) = world.delete(&path).await;
    let (again, _) = world.delete(&path).await;

    assert_eq!((made, &first), (StatusCode::CREATED, &second));
    assert_eq!((no_role, bad, error(&answer).1), (StatusCode::NOT_FOUND, StatusCode::BAD_REQUEST, "subject"));
    assert_eq!((gone, again), (StatusCode::OK, StatusCode::NOT_FOUND));
}

#[tokio::test]
async fn users_are_made_disabled_and_removed() {
    let world = World::new().await;

    let (made, user) = world.post("/users", json!({ "name": "ana" })).await;
    let (twice, _) = world.post("/users", json!({ "name": "ana" })).await;
    let (_, disabled) = world.put("/users/ana", json!({ "disabled": true })).await;
    let list = world.got("/users").await;
    let (unknown, _) = world.put("/users/bea", json!({ "disabled": true })).await;
    let (bad, answer) = world.post("/users", json!({ "name": "a:b" })).await;
    let (gone, _) = world.delete("/users/ana").await;

    assert_eq!((made, twice, &user["disabled"]), (StatusCode::CREATED, StatusCode::CONFLICT, &json!(false)));
    assert_eq!((&disabled["disabled"], &list["users"]), (&json!(true), &json!([disabled])));
    assert_eq!((unknown, bad, error(&answer).1), (StatusCode::NOT_FOUND, StatusCode::BAD_REQUEST, "name"));
    assert_eq!((gone, world.got("/users").await), (StatusCode::OK, json!({ "users": [] })));
}

async fn with_token(world: &World, token: &str, path: &str) -> StatusCode {
    let request = Request::get(format!("/api/v1{path}")).header("Authorization", format!("Bearer {token}"));
    world.send(request.body(Body::empty()).unwrap()).await.0
}

#[tokio::test]
async fn a_user_calls_with_a_token_of_their_own_as_far_as_their_roles_go() {
    let world = World::new().await;
    world.post("/users", json!({ "name": "ana" })).await;

    let (made, token) = world.post("/users/ana/tokens", json!({ "note": "laptop", "ttl_secs": 60 })).await;
    let text = token["token"].as_str().unwrap();
    let unbound = with_token(&world, text, "/hosts").await;
    world.post("/bindings", json!({ "role": "viewer", "subject": "user:ana", "scope": "everything" })).await;
    let (bound, apps) = (with_token(&world, text, "/hosts").await, with_token(&world, text, "/apps").await);
    let list = world.got("/users/ana/tokens").await;
    world.put("/users/ana", json!({ "disabled": true })).await;
    let disabled = with_token(&world, text, "/hosts").await;
    world.put("/users/ana", json!({ "disabled": false })).await;
    let path = format!("/users/ana/tokens/{}", token["id"].as_str().unwrap());
    let (other, _) = world.delete(&path.replace("ana", "bea")).await;
    let (gone, _) = world.delete(&path).await;
    let removed = with_token(&world, text, "/hosts").await;

    assert_eq!(made, StatusCode::CREATED);
    assert_eq!((unbound, bound, apps), (StatusCode::FORBIDDEN, StatusCode::OK, StatusCode::FORBIDDEN));
    assert_eq!((&list["tokens"][0]["note"], &list["tokens"][0]["id"]), (&json!("laptop"), &token["id"]));
    assert!(!list.to_string().contains(text));
    assert_eq!((disabled, removed), (StatusCode::UNAUTHORIZED, StatusCode::UNAUTHORIZED));
    assert_eq!((other, gone), (StatusCode::NOT_FOUND, StatusCode::OK));
    for (body, field) in [(json!({ "ttl_secs": 0 }), "ttl_secs"), (json!({ "note": "a\nb" }), "note")] {
        assert_eq!(error(&world.post("/users/ana/tokens", body).await.1).1, field);
    }
    assert_eq!(world.post("/users/bea/tokens", json!({})).await.0, StatusCode::NOT_FOUND);
}

/// A path that fits the pattern of a route.
fn filled(path: &str) -> String {
    let part = |part: &str| if part.starts_with('{') { "7".to_owned() } else { part.to_owned() };
    path.trim_start_matches("/api/v1").split('/').map(part).collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn a_call_for_administrators_is_closed_to_everybody_else_and_the_attempt_is_kept() {
    let world = World::new().await;
    let (_, app) = world.post("/apps", json!({ "code": "plain", "trusted": true })).await;
    let secret = app["secret"].as_str().unwrap();
    for binding in world.got("/bindings?subject=app:plain").await["bindings"].as_array().unwrap() {
        world.delete(&format!("/bindings/{}", binding["id"].as_str().unwrap())).await;
    }
    world.post("/bindings", json!({ "role": "owner", "subject": "app:plain", "scope": "everything" })).await;
    let routes: Vec<_> = native::routes().into_iter().filter(|route| route.class == Some(Class::Admin)).collect();
    assert!(routes.len() > 25);

    for route in routes {
        let before = world.got("/audit?app=plain&limit=1000").await["entries"].as_array().unwrap().len();
        let (status, answer) =
            world.call_as("plain", secret, route.method.clone(), &filled(&route.path), json!({})).await;
        let entries = world.got("/audit?app=plain&limit=1000").await["entries"].clone();
        let new = &entries.as_array().unwrap()[before..];

        assert_eq!((status, error(&answer).0), (StatusCode::FORBIDDEN, "permission_denied"), "{route:?}: {answer}");
        let phases: Vec<&str> = new.iter().map(|entry| entry["phase"].as_str().unwrap()).collect();
        assert_eq!(phases, if route.mutates { vec!["refused"] } else { vec![] }, "{route:?}");
    }
}

#[tokio::test]
async fn every_call_of_the_table_asks_who_calls() {
    let world = World::new().await;
    let weak = admin::create_app(&world.store, &"weak".parse().unwrap(), admin::AppOptions::default(), Vec::new())
        .await
        .unwrap()
        .unwrap();

    for route in native::routes() {
        let (bare, _) = world.call_as("nobody", "x", route.method.clone(), &filled(&route.path), json!({})).await;
        let (untrusted, _) = world.call_as("weak", &weak, route.method.clone(), &filled(&route.path), json!({})).await;

        assert_eq!((bare, untrusted), (StatusCode::UNAUTHORIZED, StatusCode::UNAUTHORIZED), "{route:?}");
    }
}

#[tokio::test]
async fn whoami_tells_the_bounds_of_bindings_but_not_where_another_one_has_none() {
    let world = World::new().await;
    let (_, app) = world.post("/apps", json!({ "code": "web" })).await;
    let bind = |scope: &str, users: &[&str]| json!({ "role": "owner", "subject": "app:web", "scope": scope, "allow_users": users, "allow_roots": ["/opt/web"] });
    let (bounded, _) = world.post("/bindings", bind("namespace:web", &["web"])).await;
    world.post("/bindings", bind("namespace:free", &["web"])).await;
    let free = json!({ "role": "owner", "subject": "app:web", "scope": "namespace:free" });
    world.post("/bindings", free).await;

    let who = json!({ "bk_app_code": "web", "bk_app_secret": app["secret"], "bk_username": "web" });
    let request = Request::get("/api/v1/whoami").header("X-Bkapi-Authorization", who.to_string());
    let (_, answer) = world.send(request.body(Body::empty()).unwrap()).await;

    assert_eq!(bounded, StatusCode::CREATED);
    let within = json!([{ "scopes": ["namespace:web"], "allow_users": ["web"], "allow_roots": ["/opt/web"] }]);
    let allowed = answer["allowed"].as_array().unwrap();
    let of = |class: &str| allowed.iter().find(|allowed| allowed["class"] == class).unwrap();
    assert_eq!(of("register")["bounds"], within, "{answer}");
    assert_eq!(of("register")["scopes"], json!(["namespace:free", "namespace:web"]));
    assert_eq!(of("operate").get("bounds"), None);
}
