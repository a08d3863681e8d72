use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::UnixTime;

use super::*;
use crate::certificate::certificate_from_pem;
use crate::relay::ServerOrRelay;
use crate::tls::provider;
use crate::{AgentCertificates, AgentKey, CommandSigner, SigningSecret, TrustedSigner};

const HOUR: Duration = Duration::from_secs(3600);

fn now() -> Timestamp {
    "2030-01-02T03:04:05Z".parse().unwrap()
}

fn load(secret: &AuthoritySecret) -> Authorities {
    Authorities::load(secret, &Arc::default()).unwrap()
}

struct Phases {
    idle: AuthoritySecret,
    prepared: AuthoritySecret,
    switched: AuthoritySecret,
    finished: AuthoritySecret,
}

fn phases() -> Phases {
    let idle = Authority::generate(now()).unwrap();
    let prepared = idle.prepared(now()).unwrap().unwrap();
    let switched = prepared.switched().unwrap();
    let finished = switched.finished().unwrap();
    Phases { idle, prepared, switched, finished }
}

/// Whether a peer that trusts these authorities accepts this chain as the server's, or a relay's.
fn believes(authorities_pem: &str, chain: &[CertificateDer<'static>]) -> bool {
    let trusted = certificates_from_pem("authorities", authorities_pem).unwrap();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(now().as_second().cast_unsigned()));
    let verifier = ServerOrRelay::new(&trusted, provider()).unwrap();
    verifier.verify_server_cert(&chain[0], &chain[1..], &crate::server_name(), &[], at).is_ok()
}

#[test]
fn phases_follow_each_other_and_go_back_step_by_step() {
    let Phases { idle, prepared, switched, finished } = phases();
    let fingerprint = |secret: &AuthoritySecret| load(secret).current().fingerprint();

    assert_eq!(
        [&idle, &prepared, &switched, &finished].map(AuthoritySecret::phase),
        [RotationPhase::Idle, RotationPhase::Prepared, RotationPhase::Switched, RotationPhase::Idle]
    );
    assert_eq!(fingerprint(&prepared), fingerprint(&idle));
    assert_eq!(fingerprint(&finished), load(&switched).successor().unwrap().fingerprint());
    assert!(prepared.prepared(now()).unwrap().is_none() && switched.prepared(now()).unwrap().is_none());
    assert!(idle.switched().is_none() && idle.aborted().is_none() && idle.finished().is_none());
    assert!(prepared.finished().is_none(), "nobody has a certificate of the successor yet");
    assert!(switched.aborted().is_none() && switched.switched().is_none());
    let back = switched.switched_back().unwrap();
    assert_eq!(back.phase(), RotationPhase::Prepared);
    let was_switched =
        |secret: &AuthoritySecret| load(&AuthoritySecret::from_bytes(&secret.to_bytes()).unwrap()).was_switched();
    assert_eq!([&idle, &prepared, &switched, &back].map(was_switched), [false, false, true, true]);
    assert!(
        !was_switched(&back.aborted().unwrap().prepared(now()).unwrap().unwrap()),
        "another successor issued nothing"
    );
    assert_eq!(fingerprint(&back.aborted().unwrap()), fingerprint(&idle));
}

#[test]
fn a_phase_survives_storage_and_an_older_server_reads_the_old_authority() {
    #[derive(Deserialize)]
    struct Older {
        certificate_pem: String,
    }
    let Phases { idle, switched, .. } = phases();

    let stored = switched.to_bytes();

    let read = AuthoritySecret::from_bytes(&stored).unwrap();
    assert_eq!(read.phase(), RotationPhase::Switched);
    assert_eq!(load(&read).pem(), load(&switched).pem());
    assert_eq!(serde_json::from_slice::<Older>(&stored).unwrap().certificate_pem, idle.certificate_pem);
    assert!(!format!("{switched:?} {:?}", load(&switched)).contains("PRIVATE"));
}

#[test]
fn the_server_is_believed_by_who_knows_either_authority_until_the_end() {
    let Phases { idle, prepared, switched, finished } = phases();
    let (only_old, both, only_new) = (load(&idle).pem(), load(&prepared).pem(), load(&finished).pem());
    let chain = |secret: &AuthoritySecret| load(secret).issue_server(now()).unwrap().0;

    for secret in [&idle, &prepared, &switched] {
        assert!(believes(&only_old, &chain(secret)), "{:?}", secret.phase());
    }
    for secret in [&prepared, &switched, &finished] {
        assert!(believes(&both, &chain(secret)), "{:?}", secret.phase());
    }
    assert!(believes(&only_new, &chain(&switched)) && !believes(&only_new, &chain(&prepared)));
    assert!(!believes(&only_old, &chain(&finished)), "the old one is over");
    assert!(!believes(&load(&phases().idle).pem(), &chain(&switched)), "an authority of somebody else");
}

#[test]
fn a_chain_ends_with_the_authority_that_join_tokens_pin() {
    let Phases { idle, prepared, switched, finished } = phases();
    for secret in [&idle, &prepared, &switched, &finished] {
        let authorities = load(secret);
        let (chain, _) = authorities.issue_server(now()).unwrap();
        assert_eq!(sha256_hex(chain.last().unwrap()), authorities.current().fingerprint());
    }
}

#[test]
fn certificates_of_agents_and_relays_lead_to_either_authority() {
    let Phases { idle, switched, finished, .. } = phases();
    let (authorities, key) = (load(&switched), AgentKey::generate().unwrap());
    let csr = key.csr_der().unwrap();
    let of_agent = authorities.issue_agent(&csr, &"a-1".parse().unwrap(), now(), HOUR).unwrap();
    let of_relay = authorities.issue_relay(&csr, &"r-1".parse().unwrap(), now(), HOUR).unwrap();

    let leaf = certificate_from_pem("leaf", &of_agent).unwrap();
    let both = AgentCertificates::of(authorities.all()).unwrap();
    assert_eq!(both.verify(&leaf, now()).unwrap().as_str(), "a-1");
    let new = load(&finished).current().fingerprint();
    assert_eq!(authorities.issuer_of(&leaf), Some(new.clone()));
    assert_eq!(issuer_fingerprint(&authorities.pem(), &of_agent).unwrap(), Some(new));
    assert_eq!(issuer_fingerprint(&load(&idle).pem(), &of_agent).unwrap(), None);
    assert_eq!(crate::expires_at(&of_agent).unwrap(), now() + HOUR);
    let chain = certificates_from_pem("chain", &of_relay).unwrap();
    assert!(believes(&load(&idle).pem(), &chain), "an agent that has not heard of the successor");
    assert!(believes(&load(&finished).pem(), &chain));
    crate::session_config(&authorities.pem(), &of_agent, &key).unwrap();
}

/// Otherwise the bridge would make the successor's key one that signs certificates for whoever trusts the old
/// authority, and so on.
#[test]
fn a_bridge_makes_no_further_authorities() {
    let Phases { idle, switched, .. } = phases();
    let authorities = load(&switched);
    let third = Authority::generate(now()).unwrap();
    let of_third = AuthoritySecret {
        successor: Some(SuccessorSecret {
            certificate_pem: third.certificate_pem.clone(),
            key_pem: third.key_pem,
            issues: true,
            was_switched: true,
            prepared_at: 0,
        }),
        ..switched.finished().unwrap()
    };
    let (mut chain, _) = load(&of_third).issue_server(now()).unwrap();
    let bridge = authorities.bridge(now(), HOUR).unwrap().unwrap();
    chain.truncate(2);
    chain.push(bridge.der().clone());

    assert!(!believes(&load(&idle).pem(), &chain), "server by the third, third by the second, second by the first");
}

#[test]
fn the_signing_key_is_vouched_for_by_the_old_authority_until_the_end() {
    let Phases { idle, switched, finished, .. } = phases();
    let secret = SigningSecret::generate().unwrap();
    let signer = |of: &AuthoritySecret| CommandSigner::issue(load(of).current(), &secret, now()).unwrap();
    let is_trusted =
        |pem: &str, signer: &CommandSigner| TrustedSigner::of(pem, signer.certificate_der(), now()).is_ok();

    assert!(is_trusted(&load(&idle).pem(), &signer(&switched)));
    assert!(is_trusted(&load(&switched).pem(), &signer(&switched)));
    assert!(is_trusted(&load(&switched).pem(), &signer(&finished)));
    assert!(!is_trusted(&load(&idle).pem(), &signer(&finished)));
}

#[test]
fn a_file_with_something_else_than_authorities_is_refused() {
    let Phases { switched, .. } = phases();
    let authorities = load(&switched);
    let csr = AgentKey::generate().unwrap().csr_der().unwrap();
    let of_agent = authorities.issue_agent(&csr, &"a-1".parse().unwrap(), now(), HOUR).unwrap();

    assert_eq!(authority_fingerprints(&authorities.pem()).unwrap().len(), 2);
    for bad in ["", "no certificate", &of_agent, &authorities.pem().repeat(3)] {
        assert!(authority_fingerprints(bad).is_err(), "{bad}");
    }
}

#[test]
fn all_signatures_are_counted_together() {
    let signed = Arc::new(AtomicU64::new(0));
    let authorities = Authorities::load(&phases().switched, &signed).unwrap();

    authorities.issue_server(now()).unwrap();

    assert_eq!(signed.load(std::sync::atomic::Ordering::Relaxed), 2, "the certificate and its bridge");
}
