use proptest::prelude::*;

use super::*;

/// Both ends, joined by hand.
struct Pair {
    relay: Mux,
    server: Mux,
}

impl Pair {
    fn new(streams: u32) -> Self {
        let mut pair = Self { relay: Mux::new(8), server: Mux::new(8) };
        for _ in 0..streams {
            pair.relay.open(Vec::new()).unwrap();
        }
        pair.drive();
        pair
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "tests: whatever is unexpected fails")]
    fn deliver(to: &mut Mux, frame: RelayFrame) {
        match frame {
            RelayFrame::Open { stream, .. } => assert!(to.accept(stream).unwrap()),
            RelayFrame::Data { stream, bytes } => to.handle_data(stream, bytes).unwrap(),
            RelayFrame::Credit { stream, bytes } => to.handle_credit(stream, bytes).unwrap(),
            RelayFrame::Close { stream } => to.handle_close(stream).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn drive(&mut self) {
        loop {
            let (up, down) = (self.relay.poll_frame(), self.server.poll_frame());
            if up.is_none() && down.is_none() {
                return;
            }
            up.into_iter().for_each(|frame| Self::deliver(&mut self.server, frame));
            down.into_iter().for_each(|frame| Self::deliver(&mut self.relay, frame));
        }
    }
}

fn read_all(mux: &mut Mux, stream: u32) -> Vec<u8> {
    let mut all = Vec::new();
    while let Moved::Done(bytes) = mux.read(stream, 1000) {
        all.extend_from_slice(&bytes);
    }
    all
}

#[derive(Clone, Debug)]
enum Step {
    WriteUp(u32, usize),
    WriteDown(u32, usize),
    ReadUp(u32),
    ReadDown(u32),
    Carry(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let stream = || 1_u32..4;
    prop_oneof![
        (stream(), 1_usize..20_000).prop_map(|(stream, bytes)| Step::WriteUp(stream, bytes)),
        (stream(), 1_usize..20_000).prop_map(|(stream, bytes)| Step::WriteDown(stream, bytes)),
        stream().prop_map(Step::ReadUp),
        stream().prop_map(Step::ReadDown),
        (1_usize..10).prop_map(Step::Carry),
    ]
}

proptest! {
    /// Nobody violates the protocol, memory stays within bounds, and every byte arrives once, in order.
    #[test]
    fn bytes_arrive_in_order_within_their_bounds(steps in prop::collection::vec(step(), 1..120)) {
        let mut pair = Pair::new(3);
        let mut written = [[0_u64; 4]; 2];
        let mut read = [[0_u64; 4]; 2];
        let byte = |index: u64| u8::try_from(index % 251).unwrap();
        let check = |read: &mut u64, bytes: Vec<u8>| {
            for found in bytes {
                assert_eq!(found, byte(*read));
                *read += 1;
            }
        };
        for step in steps {
            match step {
                Step::WriteUp(stream, count) | Step::WriteDown(stream, count) => {
                    let is_up = matches!(step, Step::WriteUp(..));
                    let from = &mut written[usize::from(is_up)][stream as usize];
                    let bytes: Vec<u8> = (*from..*from + count as u64).map(byte).collect();
                    let mux = if is_up { &mut pair.relay } else { &mut pair.server };
                    if let Moved::Done(taken) = mux.write(stream, &bytes) {
                        *from += taken as u64;
                    }
                }
                Step::ReadUp(stream) => {
                    check(&mut read[1][stream as usize], read_all(&mut pair.server, stream));
                }
                Step::ReadDown(stream) => {
                    check(&mut read[0][stream as usize], read_all(&mut pair.relay, stream));
                }
                Step::Carry(frames) => for _ in 0..frames {
                    if let Some(frame) = pair.relay.poll_frame() {
                        Pair::deliver(&mut pair.server, frame);
                    }
                    if let Some(frame) = pair.server.poll_frame() {
                        Pair::deliver(&mut pair.relay, frame);
                    }
                },
            }
            for mux in [&pair.relay, &pair.server] {
                for stream in mux.streams.values() {
                    prop_assert!(stream.received.len() <= STREAM_WINDOW_BYTES && stream.to_send.len() <= STREAM_BUFFER_BYTES);
                }
            }
        }
        for _ in 0..100 {
            pair.drive();
            for stream in 1..4 {
                check(&mut read[1][stream as usize], read_all(&mut pair.server, stream));
                check(&mut read[0][stream as usize], read_all(&mut pair.relay, stream));
            }
        }
        prop_assert_eq!(read, written);
    }
}

#[test]
fn a_stream_that_nobody_reads_does_not_stop_the_others_and_all_take_turns() {
    let mut pair = Pair::new(3);
    let full = vec![7; STREAM_BUFFER_BYTES];
    for _ in 0..4 {
        pair.server.write(1, &full);
        pair.drive();
    }
    assert_eq!(pair.server.write(1, &full), Moved::Later, "nobody reads it");

    pair.server.write(2, &full);
    pair.server.write(3, &full);
    let turns: Vec<u32> = std::iter::from_fn(|| pair.server.poll_frame())
        .map(|frame| {
            let RelayFrame::Data { stream, .. } = &frame else { panic!("{frame:?}") };
            let stream = *stream;
            Pair::deliver(&mut pair.relay, frame);
            stream
        })
        .collect();

    assert_eq!(turns, [2, 3, 2, 3]);
    assert_eq!(read_all(&mut pair.relay, 1).len(), STREAM_WINDOW_BYTES);
    pair.drive();
    assert_eq!(read_all(&mut pair.relay, 1).len(), STREAM_BUFFER_BYTES, "with the credit that came back");
}

#[test]
fn what_was_written_before_a_close_still_arrives_and_then_the_stream_ends() {
    let mut pair = Pair::new(1);
    pair.server.write(1, b"refused");

    pair.server.leave(1);
    pair.drive();

    assert_eq!(read_all(&mut pair.relay, 1), b"refused");
    assert_eq!(pair.relay.read(1, 10), Moved::Never);
    assert_eq!(pair.relay.write(1, b"late"), Moved::Never);
    pair.relay.leave(1);
    assert!(pair.relay.streams.is_empty() && pair.server.streams.is_empty());
}

#[test]
fn frames_of_one_byte_hold_no_more_than_one_large_frame() {
    let mut server = Mux::new(1);
    server.accept(1).unwrap();

    for _ in 0..STREAM_WINDOW_BYTES {
        server.handle_data(1, vec![7]).unwrap();
    }

    assert!(server.streams[&1].received.capacity() <= 2 * STREAM_WINDOW_BYTES);
    assert_eq!(read_all(&mut server, 1).len(), STREAM_WINDOW_BYTES);
    assert_eq!(server.streams[&1].received.capacity(), 0, "and nothing once it was read");
}

#[test]
fn a_peer_that_breaks_the_rules_is_found_out() {
    let mut server = Mux::new(2);
    assert!(server.accept(1).unwrap());

    assert_eq!(server.accept(3), Err(MuxError::Number { found: 3, expected: 2 }));
    assert_eq!(server.handle_data(2, vec![1]), Err(MuxError::NotOpened { stream: 2 }));
    assert_eq!(server.handle_data(0, vec![1]), Err(MuxError::NotOpened { stream: 0 }));
    assert_eq!(server.handle_credit(1, 1), Err(MuxError::Credit { stream: 1 }));
    server.handle_data(1, vec![0; STREAM_WINDOW_BYTES]).unwrap();
    assert_eq!(server.handle_data(1, vec![0]), Err(MuxError::Overrun { stream: 1 }));
}

#[test]
fn what_comes_for_a_stream_that_was_just_closed_is_ignored() {
    let mut server = Mux::new(2);
    server.accept(1).unwrap();

    server.leave(1);

    assert_eq!(server.handle_data(1, vec![1]), Ok(()));
    assert_eq!(server.handle_credit(1, 1), Ok(()));
    assert_eq!(server.handle_close(1), Ok(()));
}

#[test]
fn a_relay_that_opens_without_end_and_takes_no_answers_is_cut_off() {
    let mut server = Mux::new(2);

    let failed = (1..).find_map(|stream| server.accept(stream).err());

    assert_eq!(failed, Some(MuxError::Flooded));
    assert!(server.streams.len() <= 2);
}

#[test]
fn a_relay_whose_streams_are_closed_at_once_and_that_takes_no_answers_is_cut_off() {
    let mut server = Mux::new(2);

    let mut open_and_leave = |stream| {
        server.accept(stream)?;
        server.leave(stream);
        Ok(())
    };
    let failed = (1..100_000).find_map(|stream| open_and_leave(stream).err());

    assert_eq!(failed, Some(MuxError::Flooded));
    assert!(server.control.len() <= CONTROL_SPARE + 2 * 2 + 1);
    assert_eq!(server.handle_data(1, vec![1]), Err(MuxError::Flooded), "nothing else is taken either");
    while server.poll_frame().is_some() {}
    assert_eq!(server.handle_data(1, vec![1]), Ok(()));
}

#[test]
fn a_heartbeat_is_a_frame_of_its_own_and_costs_no_memory() {
    let mut server = Mux::new(2);
    server.accept(1).unwrap();

    for _ in 0..1000 {
        server.handle_beat(1).unwrap();
    }
    assert_eq!(read_all(&mut server, 1), beat_frame());
    server.handle_data(1, vec![0, 0]).unwrap();
    assert_eq!(read_all(&mut server, 1), [0, 0]);
    server.handle_beat(1).unwrap();
    assert_eq!(server.read(1, 10), Moved::Later, "not inside a frame");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_held_back_inside_a_frame_is_there_as_long_as_its_relay_says_so() {
    use std::time::Duration;
    let limit = Duration::from_secs(10);
    let streams = Streams::new(2);
    let stream = crate::Counted::new(streams.accept(1).unwrap().unwrap());
    let counters = stream.counters();
    streams.note_beats(1, &counters);
    let (_out, mut incoming): (crate::Outgoing<_, crate::FromAgent, crate::FromServer>, _) =
        crate::ends(crate::framed(stream, crate::ServerCodec::new()), counters);
    streams.handle(RelayFrame::Data { stream: 1, bytes: vec![0, 0, 1, 0, 7] }).unwrap();
    let begun = tokio::time::Instant::now();
    let beats = async {
        for _ in 0..10 {
            tokio::time::sleep(limit / 2).await;
            streams.beat(&[1]).unwrap();
        }
        std::future::pending::<()>().await;
    };

    let ended = tokio::select! {
        ended = incoming.next(limit, limit, |_| true) => ended,
        () = beats => unreachable!("it waits"),
    };

    assert!(matches!(ended, Err(crate::Lost::Silent)), "{ended:?}");
    assert_eq!(begun.elapsed().as_secs(), (5 * limit + limit).as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_is_noted_wakes_nobody_unless_its_reader_wants_to_know() {
    use std::time::Duration;
    let streams = Streams::new(2);
    let stream = crate::Counted::new(streams.accept(1).unwrap().unwrap());
    let counters = stream.counters();
    streams.note_beats(1, &counters);
    let (_out, mut incoming): (crate::Outgoing<_, crate::FromAgent, crate::FromServer>, _) =
        crate::ends(crate::framed(stream, crate::ServerCodec::new()), counters);
    let limit = Duration::from_secs(10);

    let begun = tokio::time::Instant::now();
    let beats = async {
        for _ in 0..10 {
            tokio::time::sleep(limit / 2).await;
            streams.beat(&[1]).unwrap();
        }
        begun.elapsed()
    };
    let (ended, last) = tokio::join!(incoming.next(limit, 10 * limit, |_| true), beats);
    assert!(matches!(ended, Err(crate::Lost::Silent)), "{ended:?}");
    assert_eq!(begun.elapsed().as_secs(), (last + limit).as_secs(), "each was noted");

    incoming.want_beats(true);
    streams.beat(&[1]).unwrap();
    let heard = incoming.next(limit, limit, |_| true).await;
    assert!(matches!(heard, Ok(crate::FromAgent::Beat)), "{heard:?}");
}

#[test]
fn a_heartbeat_that_overtakes_its_opening_harms_nobody() {
    let mut server = Mux::new(2);
    server.accept(1).unwrap();

    assert_eq!(server.handle_beat(2), Ok(()));
    assert_eq!(server.handle_beat(0), Err(MuxError::NotOpened { stream: 0 }));

    server.accept(2).unwrap();
    assert_eq!(server.read(2, 10), Moved::Later, "it was not kept");
}

#[tokio::test]
async fn the_end_of_the_connection_ends_every_stream() {
    use tokio::io::AsyncReadExt;
    let streams = Streams::new(2);
    let mut stream = streams.open(Vec::new()).unwrap();

    let (read, ()) = tokio::join!(stream.read_u8(), async { streams.end() });

    assert!(read.is_err() && streams.is_over());
    assert!(streams.open(Vec::new()).is_none());
    drop(stream);
    assert_eq!(streams.count(), 0);
}
