//! Every compatible route with bodies that nobody would send: the captured requests with fields taken
//! away, doubled, replaced by values of other kinds, nested deep, and plain noise. A fixed number of
//! cases from a fixed seed: a failure names the case, and it comes again.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use proctor_server::api;
use serde_json::{Map, Value, json};

use crate::support::{APP, SECRET, World};

const SEED: u64 = 0x5eed_0004;
/// For each route, with changed bodies, and once more with noise instead of JSON.
const CASES_OF_A_ROUTE: usize = 24;
const NOISE_OF_A_ROUTE: usize = 8;
/// One answer, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// SplitMix64: small, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() % bound as u64).unwrap()
    }

    fn one<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// A value of any kind, none of which fits.
fn strange(dice: &mut Dice) -> Value {
    match dice.below(16) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(i64::MIN),
        5 => json!(1e308),
        6 => json!(-0.0),
        7 => json!(""),
        8 => json!("\u{0}\u{1b}[31m\u{202e}"),
        9 => json!("../../../etc/passwd"),
        10 => json!("名".repeat(5000)),
        11 => json!([]),
        12 => json!({}),
        13 => deep(60),
        14 => json!([[[]], {"": null}, "x", 7]),
        _ => json!("10.0.0.1:0:GSETASK:"),
    }
}

fn deep(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({"meta": inner}) })
}

/// One change somewhere in the value.
fn change(value: &mut Value, dice: &mut Dice) {
    let go_deeper = dice.below(4) > 0;
    match value {
        Value::Object(fields) if go_deeper && !fields.is_empty() => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = dice.one(&names).clone();
            match dice.below(6) {
                0 => {
                    fields.remove(&name);
                }
                1 => {
                    let copy = fields[&name].clone();
                    fields.insert(format!("{name} "), copy);
                }
                2 => {
                    fields.insert(name, strange(dice));
                }
                _ => change(&mut fields[&name], dice),
            }
        }
        Value::Array(items) if go_deeper && !items.is_empty() => {
            let index = dice.below(items.len());
            match dice.below(5) {
                0 => {
                    items.remove(index);
                }
                1 => {
                    let copy = items[index].clone();
                    items.push(copy);
                }
                2 => items[index] = strange(dice),
                _ => change(&mut items[index], dice),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            *value = strange(dice);
        }
    }
}

fn noise(dice: &mut Dice) -> Vec<u8> {
    match dice.below(6) {
        0 => (0..dice.below(300)).map(|_| dice.roll() as u8).collect(),
        1 => b"[".repeat(100_000),
        2 => b"{\"a\":".repeat(20_000),
        3 => b"{\"bk_app_code\":\"\\ud800\"}".to_vec(),
        4 => b"{\"meta\":1,\"meta\":{},\"op_type\":1e999999}".to_vec(),
        _ => format!("{{\"n\":{}}}", "9".repeat(10_000)).into_bytes(),
    }
}

fn request(method: &Method, path: &str, headers: &[(&str, String)], body: Vec<u8>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    request.body(Body::from(body)).unwrap()
}

/// The bodies that clients sent, by the last part of their path.
fn captured() -> Vec<Value> {
    let captured: Vec<Value> = serde_json::from_str(include_str!("../data/captured.json")).unwrap();
    let bodies = captured.into_iter().map(|entry| entry["body"].clone()).filter(Value::is_object);
    let own = [
        json!({"meta": {"namespace": "web"}, "page": {"start": 0, "limit": 10}}),
        json!({"hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 0, "bk_agent_id": "x"}]}),
        json!({"task_id": "GSETASK:0192f0c1a2b37c4d8e5f60718293a4b5", "agent_id_list": ["0:10.0.0.1"]}),
    ];
    bodies.chain(own).collect()
}

fn credentials() -> Map<String, Value> {
    let who = json!({"bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin"});
    who.as_object().unwrap().clone()
}

async fn must_be_answered(world: &World, case: &str, is_gateway: bool, request: Request<Body>) {
    let answer = tokio::time::timeout(PATIENCE, world.send(request)).await.unwrap_or_else(|_| panic!("{case} hangs"));

    let status = answer.status;
    assert!(!status.is_server_error(), "{case}: {status} {}", answer.json);
    let may_fail = is_gateway && status.is_client_error();
    assert!(status == StatusCode::OK || may_fail, "{case}: {status}");
    let code = answer.json["code"].as_i64().unwrap_or_else(|| panic!("{case} has no code: {}", answer.json));
    assert_eq!(answer.json["result"], json!(code == 0), "{case}");
    assert!(answer.json["message"].is_string(), "{case}");
    assert!(answer.json.get("data").is_some(), "{case}");
    assert!(code == 0 || answer.json["data"].is_null(), "{case}: {}", answer.json);
    assert!(!answer.json.to_string().contains(SECRET), "{case} tells the secret");
}

#[tokio::test]
async fn no_body_brings_a_route_out_of_its_envelope() {
    let world = World::new().await;
    let mut dice = Dice(SEED);
    let bodies = captured();
    let routes: Vec<_> = api::routes().into_iter().filter(|route| !route.path.starts_with("/api/v1/")).collect();
    assert!(routes.len() > 90, "{}", routes.len());

    for route in routes {
        let is_gateway = route.path.contains("/api/v2/");
        let path = route.path.replace("{stage}", "prod");
        let header = [("X-Bkapi-Authorization", Value::Object(credentials()).to_string())];
        for number in 0..CASES_OF_A_ROUTE {
            let mut body = dice.one(&bodies).clone();
            for _ in 0..=dice.below(3) {
                change(&mut body, &mut dice);
            }
            let case = format!("{} {path} case {number} with {body}", route.method);
            let case = case.chars().take(2000).collect::<String>();
            must_be_answered(
                &world,
                &case,
                is_gateway,
                request(&route.method, &path, &header, body.to_string().into()),
            )
            .await;
        }
        for number in 0..NOISE_OF_A_ROUTE {
            let case = format!("{} {path} noise {number}", route.method);
            let header = if number % 2 == 0 { &header[..] } else { &[] };
            must_be_answered(&world, &case, is_gateway, request(&route.method, &path, header, noise(&mut dice))).await;
        }
    }
    world.end().await;
}

#[tokio::test]
async fn no_header_brings_a_route_out_of_its_envelope() {
    let world = World::new().await;
    let mut dice = Dice(SEED ^ 1);
    let body = json!({"meta": {"namespace": "web", "name": "a"}, "hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 0}]});
    let names = [
        "X-Bkapi-Authorization",
        "X-Bkapi-JWT",
        "Authorization",
        "Bk-App-Code",
        "Bk-Username",
        "X-Bkapi-Request-Id",
        "blueking-language",
        "Accept-Language",
    ];
    let paths = [
        "/api/c/compapi/v2/gse/get_proc_status",
        "/api/v2/proc/get_proc_status_v2",
        "/api/c/compapi/v2/job/get_proc_result",
        "/procapi/v1/proc/status",
    ];

    for number in 0..400 {
        let path = *dice.one(&paths);
        let method = if path.starts_with("/procapi") { Method::GET } else { Method::POST };
        let mut headers: Vec<(&str, String)> = Vec::new();
        for _ in 0..=dice.below(3) {
            let mut who = Value::Object(credentials());
            change(&mut who, &mut dice);
            let value = match dice.below(4) {
                0 => who.to_string(),
                1 => format!("Bearer pt_{}_{}", dice.roll(), dice.roll()),
                2 => "a.b.c".to_owned(),
                _ => (0..dice.below(50)).map(|_| char::from(32 + (dice.roll() % 95) as u8)).collect(),
            };
            let value: String = value.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').collect();
            headers.push((*dice.one(&names), value));
        }
        let query = [
            "",
            "?bk_signature=x",
            "?bk_signature=x&bk_timestamp=1&bk_nonce=1",
            "?%zz=%",
            "?bk_app_code=a&bk_app_code=b",
        ];
        let uri = format!("{path}{}", dice.one(&query));
        let case = format!("{uri} case {number} with {headers:?}");
        let request = request(&method, &uri, &headers, body.to_string().into());
        must_be_answered(&world, &case, path.starts_with("/api/v2"), request).await;
    }
    world.end().await;
}
