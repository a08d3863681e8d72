//! What is signed in a session, and everything that must not pass as that.

#![allow(clippy::unwrap_used, reason = "tests: whatever is unexpected fails")]

use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use proctor_model::{AgentId, BootId, OperationId, OperationKind, Outcome, ProcessKey, TaskId};
use proctor_pki::{
    AgentKey, Authority, CommandCheck, CommandSeal, CommandSigner, ControlTrust, HelloTerms, OldKey, ReportCheck,
    ReportSeal, SessionTerms, SigningSecret, Untrusted, signed_welcome,
};
use proctor_wire::{FromAgent, FromServer, LinkMessage, Signed, WelcomeProof, encode_part};
use proptest::prelude::*;
use prost::Message;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

struct World {
    authority: Authority,
    secret: SigningSecret,
    signer: CommandSigner,
    agent: AgentId,
}

fn now() -> Timestamp {
    "2030-01-02T03:04:05Z".parse().unwrap()
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let authority = Authority::load(&Authority::generate(now()).unwrap()).unwrap();
        let secret = SigningSecret::generate().unwrap();
        let signer = CommandSigner::issue(&authority, &secret, now()).unwrap();
        World { authority, secret, signer, agent: "a-1".parse().unwrap() }
    })
}

fn terms<'a>(agent: &'a AgentId, challenge: &'a [u8]) -> SessionTerms<'a> {
    SessionTerms {
        agent,
        challenge,
        epoch: 7,
        control_epoch: 3,
        beat_interval_ms: 5_000,
        server_time_ms: 1_000,
        signed_reports: true,
        state_known: false,
        hello: hello(),
    }
}

fn hello() -> HelloTerms<'static> {
    static BOOT: OnceLock<BootId> = OnceLock::new();
    let boot = BOOT.get_or_init(|| BootId::from("boot"));
    HelloTerms { boot, nonce: b"run", seen_generation: 4, seen_epoch: Some(6) }
}

fn check(world: &World, terms: &SessionTerms<'_>, proof: &WelcomeProof) -> Result<CommandCheck, Untrusted> {
    CommandCheck::of_welcome(world.authority.certificate_pem(), terms, proof, ControlTrust::default(), now())
}

/// Both ends of a session that has opened.
fn session(world: &World, terms: &SessionTerms<'_>) -> (CommandSeal, CommandCheck) {
    let (proof, seal) = signed_welcome(&world.signer, terms).unwrap();
    (seal, check(world, terms, &proof).unwrap())
}

fn open(world: &World, check: &mut CommandCheck, signed: &Signed) -> Result<Vec<FromServer>, Untrusted> {
    check.open(world.authority.certificate_pem(), signed, now(), &mut None)
}

fn operation() -> OperationId {
    OperationId { task: TaskId::from_uuid(uuid::Uuid::from_u128(7)), index: 1, attempt: 0, part: 0 }
}

fn operate() -> FromServer {
    FromServer::Operate {
        operation: operation(),
        key: "web/nginx".parse::<ProcessKey>().unwrap(),
        kind: OperationKind::Stop,
        spec: None,
        expires_in: Duration::from_secs(30),
    }
}

fn commands() -> Vec<FromServer> {
    vec![FromServer::Cancel { operations: vec![operation()] }, operate()]
}

fn parts(messages: Vec<FromServer>) -> Vec<Vec<u8>> {
    messages.into_iter().map(encode_part).collect()
}

/// What is received of a message with one bit of its frame flipped.
fn with_flipped_bit<M: LinkMessage + PartialEq>(message: M, at: usize, bit: u8) -> Option<M> {
    let decoded = |bytes: &[u8]| M::from_proto(M::Proto::decode(bytes).ok()?, &mut None).ok();
    let mut bytes = message.into_proto().encode_to_vec();
    let original = decoded(&bytes);
    let at = at % bytes.len();
    bytes[at] ^= 1 << bit;
    // Some bits have no meaning: every non-zero number is true.
    decoded(&bytes).filter(|changed| Some(changed) != original.as_ref())
}

#[test]
fn what_was_signed_is_heard_in_order() {
    let (world, challenge) = (world(), [1; 32]);
    let (mut seal, mut check) = session(world, &terms(&world.agent, &challenge));

    for _ in 0..3 {
        let signed = seal.seal(&world.signer, parts(commands())).unwrap();
        assert_eq!(signed.signer_der, None, "the agent knows it from the welcome");
        assert_eq!(open(world, &mut check, &signed).unwrap(), commands());
    }
}

#[test]
fn nothing_is_heard_twice_or_after_a_gap() {
    let (world, challenge) = (world(), [1; 32]);
    let (mut seal, mut check) = session(world, &terms(&world.agent, &challenge));
    let signed: Vec<_> = (0..3).map(|_| seal.seal(&world.signer, parts(commands())).unwrap()).collect();

    open(world, &mut check, &signed[0]).unwrap();

    let again = open(world, &mut check, &signed[0]).unwrap_err();
    assert!(matches!(again, Untrusted::Sequence { found: 0, expected: 1 }), "{again:?}");
    let gap = open(world, &mut check, &signed[2]).unwrap_err();
    assert!(matches!(gap, Untrusted::Sequence { found: 2, expected: 1 }), "{gap:?}");
    let renumbered = Signed { sequence: 1, ..signed[0].clone() };
    assert!(matches!(open(world, &mut check, &renumbered), Err(Untrusted::Signature)));
    open(world, &mut check, &signed[1]).unwrap();
}

#[test]
fn a_message_is_good_for_its_own_session_only() {
    let (world, challenge) = (world(), [1; 32]);
    let (mine, other) = (terms(&world.agent, &challenge), "a-2".parse::<AgentId>().unwrap());
    let (_, mut check) = session(world, &mine);
    let (hello, boot) = (mine.hello, BootId::from("another"));
    let greeted = |hello| SessionTerms { hello, ..mine };
    let elsewhere = [
        SessionTerms { agent: &other, ..mine },
        SessionTerms { challenge: &[2; 32], ..mine },
        SessionTerms { epoch: 6, ..mine },
        SessionTerms { control_epoch: 2, ..mine },
        SessionTerms { signed_reports: false, ..mine },
        SessionTerms { state_known: true, ..mine },
        greeted(HelloTerms { boot: &boot, ..hello }),
        greeted(HelloTerms { nonce: b"another", ..hello }),
        greeted(HelloTerms { seen_generation: 5, ..hello }),
        greeted(HelloTerms { seen_epoch: Some(5), ..hello }),
        greeted(HelloTerms { seen_epoch: None, ..hello }),
    ];

    for terms in elsewhere {
        let (proof, mut seal) = signed_welcome(&world.signer, &terms).unwrap();
        let signed = seal.seal(&world.signer, parts(commands())).unwrap();

        assert!(matches!(open(world, &mut check, &signed), Err(Untrusted::Signature)), "{terms:?}");
        assert!(matches!(self::check(world, &mine, &proof), Err(Untrusted::Signature)), "{terms:?}");
    }
}

#[test]
fn a_server_of_the_authority_without_the_signing_key_is_not_believed() {
    let (world, challenge) = (world(), [1; 32]);
    let terms = terms(&world.agent, &challenge);
    // It has made its own key and presents the certificate of the right one.
    let own = CommandSigner::issue(
        &Authority::load(&Authority::generate(now()).unwrap()).unwrap(),
        &SigningSecret::generate().unwrap(),
        now(),
    )
    .unwrap();
    let (proof, mut seal) = signed_welcome(&own, &terms).unwrap();
    let borrowed = WelcomeProof { signer_der: world.signer.certificate_der().to_vec(), ..proof.clone() };

    assert!(matches!(check(world, &terms, &proof), Err(Untrusted::Signer(_))));
    assert!(matches!(check(world, &terms, &borrowed), Err(Untrusted::Signature)));
    let (_, mut check) = session(world, &terms);
    let signed = seal.seal(&own, parts(commands())).unwrap();
    assert!(matches!(open(world, &mut check, &signed), Err(Untrusted::Signature)));
    let announced = Signed { signer_der: Some(own.certificate_der().to_vec()), ..signed };
    assert!(matches!(open(world, &mut check, &announced), Err(Untrusted::Signer(_))));
}

#[test]
fn a_rotation_is_followed_at_once_and_the_old_key_is_refused_as_it_says() {
    let (world, challenge) = (world(), [1; 32]);
    let terms = terms(&world.agent, &challenge);
    let (mut seal, mut check) = session(world, &terms);
    let issue = |secret: &SigningSecret| CommandSigner::issue(&world.authority, secret, now()).unwrap();
    let second = world.secret.rotated(OldKey::Accepted, 0).unwrap();
    let third = second.rotated(OldKey::Refused, 0).unwrap();
    let (second, third) = (issue(&second), issue(&third));
    let welcome = |signer: &CommandSigner, known| {
        let (proof, _) = signed_welcome(signer, &terms).unwrap();
        CommandCheck::of_welcome(world.authority.certificate_pem(), &terms, &proof, known, now())
    };

    assert!(seal.has_news(&second));
    open(world, &mut check, &seal.seal(&second, parts(commands())).unwrap()).unwrap();
    assert!(!seal.has_news(&second));
    assert!(welcome(&world.signer, check.trust()).is_ok(), "another server may not have heard of it yet");
    open(world, &mut check, &seal.seal(&third, Vec::new()).unwrap()).unwrap();

    assert_eq!(check.trust(), ControlTrust { control_epoch: 3, oldest_signer: 3 });
    for old in [&world.signer, &second] {
        assert!(matches!(welcome(old, check.trust()), Err(Untrusted::OldSigner { oldest: 3, .. })));
    }
    let back = seal.seal(&second, parts(commands())).unwrap();
    assert!(matches!(open(world, &mut check, &back), Err(Untrusted::OldSigner { number: 2, oldest: 3 })));
}

#[test]
fn an_older_control_plane_is_refused() {
    let (world, challenge) = (world(), [1; 32]);
    let terms = terms(&world.agent, &challenge);
    let (proof, _) = signed_welcome(&world.signer, &terms).unwrap();
    let welcome = |control_epoch| {
        let known = ControlTrust { control_epoch, oldest_signer: 0 };
        CommandCheck::of_welcome(world.authority.certificate_pem(), &terms, &proof, known, now())
    };

    assert!(matches!(welcome(4), Err(Untrusted::OldControlPlane { theirs: 3, ours: 4 })));
    assert_eq!(welcome(2).unwrap().trust().control_epoch, 3);
}

#[test]
fn a_renewed_certificate_is_not_told_in_a_session_and_the_key_goes_on() {
    let (world, challenge) = (world(), [1; 32]);
    let (mut seal, mut check) = session(world, &terms(&world.agent, &challenge));
    let year = Duration::from_hours(365 * 24);
    // By a server whose clock was a year ahead for a while.
    let renewed = CommandSigner::issue(&world.authority, &world.secret, now() + year).unwrap();

    assert!(!seal.has_news(&renewed));
    let signed = seal.seal(&renewed, parts(commands())).unwrap();

    assert_eq!(signed.signer_der, None);
    assert_eq!(open(world, &mut check, &signed).unwrap(), commands());
    let (proof, _) = signed_welcome(&renewed, &terms(&world.agent, &challenge)).unwrap();
    assert!(self::check(world, &terms(&world.agent, &challenge), &proof).is_ok(), "nor does it end the next session");
}

#[test]
fn one_signature_is_good_for_many_sessions_each_with_its_own_share() {
    let world = world();
    let agents: Vec<AgentId> = (0..5).map(|number| format!("a-{number}").parse().unwrap()).collect();
    let mut sessions: Vec<_> = agents.iter().map(|agent| session(world, &terms(agent, &[1; 32]))).collect();
    let unsigned: Vec<_> =
        sessions.iter_mut().map(|(seal, _)| seal.prepare(&world.signer, parts(commands()))).collect();
    let hashes: Vec<_> = unsigned.iter().map(|unsigned| unsigned.hash()).collect();

    let shares = world.signer.sign_all(&hashes).unwrap();
    let signed: Vec<_> = unsigned.into_iter().zip(shares).map(|(unsigned, share)| unsigned.signed(share)).collect();

    assert!(signed.iter().all(|one| one.signature == signed[0].signature));
    for (index, (_, check)) in sessions.iter_mut().enumerate() {
        let neighbour = &signed[(index + 1) % signed.len()];
        assert!(matches!(open(world, check, neighbour), Err(Untrusted::Signature)), "of another agent");
        assert_eq!(open(world, check, &signed[index]).unwrap(), commands());
    }
}

#[test]
fn a_signed_message_holds_no_other_one() {
    let (world, challenge) = (world(), [1; 32]);
    let (mut seal, mut check) = session(world, &terms(&world.agent, &challenge));
    let inner = seal.seal(&world.signer, parts(commands())).unwrap();
    let (mut seal, _) = session(world, &terms(&world.agent, &challenge));

    let outer = seal.seal(&world.signer, parts(vec![FromServer::Signed(inner)])).unwrap();

    assert!(matches!(open(world, &mut check, &outer), Err(Untrusted::Unreadable(_))));
}

fn report() -> FromAgent {
    FromAgent::Outcome { operation: operation(), outcome: Outcome::success(true) }
}

/// A key with its certificate.
fn certified(world: &World, key: AgentKey) -> (AgentKey, CertificateDer<'static>) {
    let day = Duration::from_hours(24);
    let pem = world.authority.issue_agent(&key.csr_der().unwrap(), &world.agent, now(), day).unwrap();
    (key, CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
}

#[test]
fn a_report_is_by_the_agent_of_the_session_and_heard_once() {
    let (world, challenge) = (world(), [1; 32]);
    let terms = terms(&world.agent, &challenge);
    let ed25519 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
    for key in [AgentKey::generate().unwrap(), AgentKey::from_pem(&ed25519).unwrap()] {
        let (key, certificate) = certified(world, key);
        let mut check = ReportCheck::new(&terms, &certificate).unwrap();
        let mut seal = ReportSeal::new(&terms);
        let signed = seal.seal(&key, vec![encode_part(report())]).unwrap();
        let of_another = ReportSeal::new(&terms).seal(&AgentKey::generate().unwrap(), signed.messages.clone()).unwrap();
        let earlier = SessionTerms { epoch: 6, ..terms };
        let of_earlier = ReportSeal::new(&earlier).seal(&key, signed.messages.clone()).unwrap();

        for forged in [of_another, of_earlier] {
            assert!(matches!(check.open(&forged, &mut None), Err(Untrusted::Signature)));
        }
        assert_eq!(check.open(&signed, &mut None).unwrap(), [report()]);
        assert!(matches!(check.open(&signed, &mut None), Err(Untrusted::Sequence { .. })));
        let next = seal.seal(&key, vec![encode_part(report())]).unwrap();
        check.open(&next, &mut None).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bit_of_a_signed_command_can_be_changed(at in any::<usize>(), bit in 0..8_u8, later in any::<bool>()) {
        let (world, challenge) = (world(), [1; 32]);
        let (mut seal, mut check) = session(world, &terms(&world.agent, &challenge));
        if later {
            // So that the number is written, too.
            open(world, &mut check, &seal.seal(&world.signer, Vec::new()).unwrap()).unwrap();
        }
        let signed = seal.seal(&world.signer, parts(commands())).unwrap();

        let heard = with_flipped_bit(FromServer::Signed(signed), at, bit);

        if let Some(FromServer::Signed(heard)) = heard {
            prop_assert!(open(world, &mut check, &heard).is_err());
        }
    }

    #[test]
    fn no_bit_of_a_welcome_can_be_changed(at in any::<usize>(), bit in 0..8_u8) {
        let (world, challenge) = (world(), [1; 32]);
        let terms = SessionTerms { state_known: at % 2 == 0, ..terms(&world.agent, &challenge) };
        let (proof, _) = signed_welcome(&world.signer, &terms).unwrap();
        let welcome = FromServer::Welcome {
            epoch: terms.epoch,
            beat_interval: Duration::from_millis(terms.beat_interval_ms),
            server_time_ms: terms.server_time_ms,
            proof: Some(proof),
            state_known: terms.state_known,
        };

        let heard = with_flipped_bit(welcome, at, bit);

        if let Some(FromServer::Welcome { epoch, beat_interval, server_time_ms, proof: Some(proof), state_known }) = heard {
            let heard = SessionTerms {
                epoch,
                control_epoch: proof.control_epoch,
                beat_interval_ms: u64::try_from(beat_interval.as_millis()).unwrap(),
                server_time_ms,
                signed_reports: proof.signed_reports,
                state_known,
                ..terms
            };
            prop_assert!(check(world, &heard, &proof).is_err());
        }
    }

    #[test]
    fn no_bit_of_a_signed_report_can_be_changed(at in any::<usize>(), bit in 0..8_u8) {
        static KEY: OnceLock<(AgentKey, CertificateDer<'static>)> = OnceLock::new();
        let (world, challenge) = (world(), [1; 32]);
        let (key, certificate) = KEY.get_or_init(|| certified(world, AgentKey::generate().unwrap()));
        let terms = terms(&world.agent, &challenge);
        let signed = ReportSeal::new(&terms).seal(key, vec![encode_part(report())]).unwrap();

        let heard = with_flipped_bit(FromAgent::Signed(signed), at, bit);

        if let Some(FromAgent::Signed(heard)) = heard {
            let mut check = ReportCheck::new(&terms, certificate).unwrap();
            prop_assert!(check.open(&heard, &mut None).is_err());
        }
    }
}
