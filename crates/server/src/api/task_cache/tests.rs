use proctor_model::{Code, Message, OperationId, OperationKind, Outcome};
use proctor_runtime::Tasks;
use proctor_store::conformance::spec;
use proctor_store::sqlite::SqliteStore;
use proctor_store::{NewTask, Prune, Store, Target, TaskItem, TaskView};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::api::content::content;
use crate::api::language;

/// More than two pieces.
const TARGETS: u32 = 600;

fn id(number: u128) -> TaskId {
    TaskId::from_uuid(Uuid::from_u128(number))
}

async fn store() -> (Arc<dyn Store>, Control, TempDir) {
    let dir = TempDir::new().unwrap();
    let store = SqliteStore::open(&dir.path().join("test.db")).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let control = Control::start(store.clone(), &Tasks::default()).await.unwrap();
    (store, control, dir)
}

async fn create(store: &Arc<dyn Store>, number: u128, targets: u32) {
    let item = |kind| TaskItem {
        key: "web/nginx".parse().unwrap(),
        kind: Some(kind),
        spec: Some(spec("nginx")),
        carried: false,
        register: false,
        time_limit_ms: 1000,
        wait_ms: 0,
    };
    let target = |index: u32| Target {
        item: index % 2,
        agent: Some(format!("agent-{index}").parse().unwrap()),
        host: None,
        row_key: format!("agent-{index}:web:\"nginx\""),
        // Some hosts have a second name.
        other_row_keys: index.is_multiple_of(7).then(|| format!("0:{index}:web:nginx")).into_iter().collect(),
    };
    let task = NewTask {
        id: id(number),
        created_at: 1_700_000_000_000,
        app: "app".to_owned(),
        user: "admin".to_owned(),
        family: "gse_v2".to_owned(),
        items: vec![item(OperationKind::Start), item(OperationKind::Status)],
        targets: (0..targets).map(target).collect(),
        outcomes: Vec::new(),
        audit: None,
        idempotency: None,
        retry_of: None,
        scope: None,
        rollout: None,
    };
    store.create_task(task).await.unwrap();
}

async fn record(store: &Arc<dyn Store>, number: u128, outcomes: &[(u32, Outcome)]) {
    let outcomes: Vec<(OperationId, Outcome)> =
        outcomes.iter().map(|(index, outcome)| (OperationId::first(id(number), *index), outcome.clone())).collect();
    store.record_outcomes(&outcomes, 1).await.unwrap();
}

async fn poll(kept: &TaskCache, control: &Control, number: u128, shape: Shape) -> Vec<u8> {
    let summary = control.steered_task(id(number)).await.unwrap().unwrap();
    let rendition = kept.of(control, &summary, shape).await.unwrap().unwrap();
    rendition.data().concat()
}

/// What the store says, without any text that was kept.
fn expected(task: &TaskView, shape: Shape) -> Value {
    let mut rows = serde_json::Map::new();
    for view in &task.targets {
        let row = match (&view.outcome, shape) {
            (None, Shape::Gse) => json!({"error_code": 115, "error_msg": "handling", "content": ""}),
            (None, Shape::Job) => json!({"error_code": 115, "error_msg": "handling", "content": {}}),
            (Some(outcome), shape) => {
                let content =
                    serde_json::to_value(content(task, &view.target, view.target.agent.as_ref(), outcome)).unwrap();
                let content = if shape == Shape::Gse { json!(content.to_string()) } else { content };
                let message = language::of_outcome(outcome);
                json!({"error_code": outcome.code.number(), "error_msg": message, "content": content})
            }
        };
        for row_key in &view.target.other_row_keys {
            rows.insert(row_key.clone(), row.clone());
        }
        rows.insert(view.target.row_key.clone(), row);
    }
    let is_pending = task.targets.iter().any(|view| view.outcome.is_none());
    match shape {
        Shape::Gse => Value::Object(rows),
        Shape::Job => json!({"status": if is_pending { 115 } else { 0 }, "result": rows}),
    }
}

/// The text of the content of a row may order its fields in its own way.
fn parsed(text: &[u8]) -> Value {
    let mut value: Value = serde_json::from_slice(text).unwrap();
    for row in value.as_object_mut().unwrap().values_mut() {
        if let Some(text) = row.get("content").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            row["content"] = json!(serde_json::from_str::<Value>(text).unwrap().to_string());
        }
    }
    value
}

#[derive(Clone, Debug)]
enum Step {
    Record(u128, Vec<(u32, Outcome)>),
    Poll(u128, Shape, Language),
    Finish(u128),
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let code = prop_oneof![Just(Code::Success), Just(Code::CommandFailed), Just(Code::AgentAbsent)];
    (code, "[a-z\"\\\\ 网]{0,12}", "[a-z\n\"]{0,40}", any::<bool>()).prop_map(|(code, message, output, managed)| {
        Outcome::new(code, Message::foreign(message), managed).with_output(output)
    })
}

fn step() -> impl Strategy<Value = Step> {
    let task = 1..=3_u128;
    let shape = prop_oneof![Just(Shape::Gse), Just(Shape::Job)];
    let language = prop_oneof![Just(Language::English), Just(Language::Chinese)];
    prop_oneof![
        4 => (task.clone(), proptest::collection::vec((0..TARGETS, outcome()), 1..20))
            .prop_map(|(task, outcomes)| Step::Record(task, outcomes)),
        6 => (task.clone(), shape, language).prop_map(|(task, shape, language)| Step::Poll(task, shape, language)),
        1 => task.prop_map(Step::Finish),
    ]
}

async fn run(steps: Vec<Step>, bytes_max: usize) {
    let (store, control, _dir) = store().await;
    for task in 1..=3 {
        create(&store, task, TARGETS).await;
    }
    let kept = TaskCache::bounded(bytes_max);
    for step in steps {
        match step {
            Step::Record(task, outcomes) => record(&store, task, &outcomes).await,
            Step::Finish(task) => {
                let all: Vec<(u32, Outcome)> = (0..TARGETS).map(|index| (index, Outcome::success(true))).collect();
                record(&store, task, &all).await;
            }
            Step::Poll(task, shape, language) => {
                let polled = async {
                    let text = poll(&kept, &control, task, shape).await;
                    let view = store.task(id(task)).await.unwrap().unwrap();
                    assert_eq!(parsed(&text), expected(&view, shape));
                };
                language.during(polled).await;
                assert!(kept.kept.lock().bytes <= bytes_max);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_poll_shows_what_the_store_holds(
        steps in proptest::collection::vec(step(), 1..24),
        // Room for everything, for about one task, for none.
        bytes_max in prop_oneof![Just(usize::MAX), Just(400_000), Just(0)],
    ) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run(steps, bytes_max));
    }
}

#[tokio::test]
async fn what_nobody_has_read_for_the_longest_time_goes_first() {
    let (store, control, _dir) = store().await;
    for task in 1..=3 {
        create(&store, task, TARGETS).await;
    }
    let unbounded = TaskCache::default();
    poll(&unbounded, &control, 1, Shape::Gse).await;
    let one = unbounded.kept.lock().bytes;
    let kept = TaskCache::bounded(one * 5 / 2);
    let is_kept = |task: u128| {
        let key = Key { task: id(task), shape: Shape::Gse, language: Language::English };
        kept.kept.lock().entries.contains_key(&key)
    };
    poll(&kept, &control, 1, Shape::Gse).await;
    poll(&kept, &control, 2, Shape::Gse).await;
    poll(&kept, &control, 1, Shape::Gse).await;
    assert!(is_kept(1) && is_kept(2));

    poll(&kept, &control, 3, Shape::Gse).await;

    assert!(is_kept(1) && !is_kept(2) && is_kept(3));
    let inside = kept.kept.lock();
    assert_eq!(inside.bytes, inside.entries.values().map(|entry| entry.bytes).sum::<usize>());
    assert!(inside.bytes <= kept.bytes_max);
}

#[tokio::test]
async fn a_finished_task_is_kept_as_text_alone() {
    let (store, control, _dir) = store().await;
    create(&store, 1, TARGETS).await;
    let kept = TaskCache::default();
    poll(&kept, &control, 1, Shape::Gse).await;
    let all: Vec<(u32, Outcome)> = (0..TARGETS).map(|index| (index, Outcome::success(true))).collect();
    record(&store, 1, &all).await;

    let text = poll(&kept, &control, 1, Shape::Gse).await;

    // The braces are not kept.
    assert_eq!(kept.kept.lock().bytes, text.len() - 2 + ENTRY_BYTES);
}

#[tokio::test]
async fn a_task_that_was_forgotten_is_not_shown_from_memory() {
    let (store, control, _dir) = store().await;
    create(&store, 1, 1).await;
    let kept = TaskCache::default();
    let summary = store.task_summary(id(1)).await.unwrap().unwrap();
    record(&store, 1, &[(0, Outcome::success(true))]).await;
    while store.prune(Prune::Tasks { before: i64::MAX }).await.unwrap() > 0 {}

    assert!(kept.of(&control, &summary, Shape::Gse).await.unwrap().is_none());
    assert!(kept.kept.lock().entries.is_empty());
}

#[tokio::test]
async fn what_nobody_reads_is_forgotten_after_a_while() {
    let (store, control, _dir) = store().await;
    create(&store, 1, 10).await;
    let kept = TaskCache::default();
    poll(&kept, &control, 1, Shape::Gse).await;
    let read = Instant::now();

    kept.forget_unread(read + AGE_MAX - Duration::from_secs(60));
    assert_eq!(kept.kept.lock().entries.len(), 1);
    kept.forget_unread(read + AGE_MAX);

    let kept = kept.kept.lock();
    assert_eq!((kept.entries.len(), kept.bytes), (0, 0));
}
