//! Webhooks and their cursors.

use std::sync::Arc;

use proctor_model::EventKind;
use uuid::Uuid;

use crate::{Store, Webhook, WebhookFormat};

fn webhook(number: u128) -> Webhook {
    Webhook {
        id: Uuid::from_u128(number),
        url: format!("https://example.com/{number}"),
        namespace: Some("web".parse().unwrap()),
        report_id: Some(-1),
        kinds: vec![EventKind::RestartFailed, EventKind::AgentOffline],
        format: WebhookFormat::Gse,
        secret: Some("hush".to_owned()),
        created_at: 10 - i64::try_from(number).unwrap(),
        cursor: 7,
    }
}

pub async fn a_webhook_is_read_back_exactly_and_replaced_by_its_id(store: Arc<dyn Store>) {
    let bare = Webhook {
        namespace: None,
        report_id: None,
        kinds: Vec::new(),
        format: WebhookFormat::Native,
        secret: None,
        ..webhook(2)
    };
    store.put_webhook(webhook(1)).await.unwrap();
    store.put_webhook(bare.clone()).await.unwrap();
    let both = store.webhooks().await.unwrap();

    store.put_webhook(Webhook { url: "http://other".to_owned(), ..webhook(1) }).await.unwrap();

    assert_eq!(both, [bare, webhook(1)], "the oldest first");
    assert_eq!(store.webhooks().await.unwrap()[1].url, "http://other");
}

pub async fn a_cursor_moves_forward_only(store: Arc<dyn Store>) {
    store.put_webhook(webhook(1)).await.unwrap();
    store.put_webhook(webhook(2)).await.unwrap();

    store.advance_webhook(webhook(1).id, 20).await.unwrap();
    store.advance_webhook(webhook(1).id, 15).await.unwrap();

    let cursors: Vec<_> = store.webhooks().await.unwrap().into_iter().map(|webhook| webhook.cursor).collect();
    assert_eq!(cursors, [7, 20]);
}

pub async fn a_webhook_that_is_deleted_is_gone_and_nothing_brings_it_back(store: Arc<dyn Store>) {
    store.put_webhook(webhook(1)).await.unwrap();

    let first = store.delete_webhook(webhook(1).id).await.unwrap();
    let second = store.delete_webhook(webhook(1).id).await.unwrap();
    store.advance_webhook(webhook(1).id, 20).await.unwrap();

    assert_eq!((first, second), (true, false));
    assert!(store.webhooks().await.unwrap().is_empty());
}
