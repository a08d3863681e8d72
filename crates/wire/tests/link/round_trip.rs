//! What one end sends is what the other receives, however the bytes are split.

use crate::strategies;
use bytes::BytesMut;
use proctor_wire::{AgentCodec, FromAgent, FromServer, ServerCodec};
use proptest::prelude::*;
use tokio_util::codec::{Decoder, Encoder};

proptest! {
    #[test]
    fn a_server_hears_what_an_agent_says(message in strategies::from_agent()) {
        let mut wire = BytesMut::new();
        AgentCodec::new().encode(&message, &mut wire).unwrap();

        let heard = ServerCodec::new().decode(&mut wire).unwrap();

        prop_assert_eq!(heard, Some(message));
        prop_assert!(wire.is_empty());
    }

    #[test]
    fn an_agent_hears_what_a_server_says(message in strategies::from_server()) {
        let mut wire = BytesMut::new();
        ServerCodec::new().encode(&message, &mut wire).unwrap();

        let heard = AgentCodec::new().decode(&mut wire).unwrap();

        prop_assert_eq!(heard, Some(message));
        prop_assert!(wire.is_empty());
    }

    #[test]
    fn a_spec_keeps_its_hash_on_the_way(spec in strategies::spec(), operation in strategies::operation(), key in strategies::key()) {
        let message = FromServer::Operate {
            operation,
            key,
            kind: proctor_model::OperationKind::Start,
            spec: Some(spec.clone()),
            expires_in: std::time::Duration::from_secs(1),
        };
        let mut wire = BytesMut::new();
        ServerCodec::new().encode(message, &mut wire).unwrap();

        let heard = AgentCodec::new().decode(&mut wire).unwrap();

        let Some(FromServer::Operate { spec: Some(heard), .. }) = heard else { panic!("heard {heard:?}") };
        prop_assert_eq!(heard.hash(), spec.hash());
    }

    #[test]
    fn messages_arrive_in_order_from_pieces_of_any_size(
        messages in proptest::collection::vec(strategies::from_agent(), 1..5),
        piece in 1..40_usize,
    ) {
        let mut wire = BytesMut::new();
        for message in &messages {
            AgentCodec::new().encode(message, &mut wire).unwrap();
        }
        let (mut codec, mut buffer, mut heard) = (ServerCodec::new(), BytesMut::new(), Vec::<FromAgent>::new());

        for bytes in wire.chunks(piece) {
            buffer.extend_from_slice(bytes);
            while let Some(message) = codec.decode(&mut buffer).unwrap() {
                heard.push(message);
            }
        }

        prop_assert_eq!(heard, messages);
        prop_assert!(codec.decode_eof(&mut buffer).unwrap().is_none());
    }
}
