//! How an agent with an expired certificate proves that it is still the one that the certificate names.
//!
//! Promised: what it signs is valid for one nonce of the server and cannot pass as anything else that its key
//! signs. Absent: whether the agent may come back; the server and its operators decide.

use proctor_wire::{FromAgent, Signed, Skipped, decode_part, encode_part};
use rustls::pki_types::CertificateDer;

use crate::hash_tree::leaf;
use crate::sealed_session::ReportKey;
use crate::{AgentKey, Result, Untrusted};

/// With the byte after it, differs from a hello, a report and everything else that an agent's key signs.
const RETURN: &[u8] = b"proctor return v1\0";

/// The agent's side: its request for a certificate, for the nonce that the server sent.
pub fn seal_return(key: &AgentKey, nonce: &[u8]) -> Result<Signed> {
    let request = encode_part(FromAgent::Renew { csr_der: key.csr_der()? });
    let signature = key.sign(&signed_return(nonce, &request))?;
    Ok(Signed { messages: vec![request], signature, ..Signed::default() })
}

/// The server's side: the certificate request (DER), if the key of this certificate has signed it for this nonce.
pub fn open_return(certificate: &CertificateDer<'_>, nonce: &[u8], signed: &Signed) -> Result<Vec<u8>, Untrusted> {
    let [request] = signed.messages.as_slice() else { return Err(Untrusted::Signature) };
    let key = ReportKey::of(certificate).map_err(Untrusted::Signer)?;
    if !key.verifies(&signed_return(nonce, request), &signed.signature) {
        return Err(Untrusted::Signature);
    }
    let skipped: &mut Option<Skipped> = &mut None;
    let FromAgent::Renew { csr_der } = decode_part(request, skipped).map_err(Untrusted::Unreadable)? else {
        return Err(Untrusted::Signature);
    };
    Ok(csr_der)
}

fn signed_return(nonce: &[u8], request: &[u8]) -> Vec<u8> {
    [RETURN, &leaf([RETURN, nonce, request])].concat()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::certificate::certificate_from_pem;
    use crate::{AgentCertificates, Authority};

    fn now() -> jiff::Timestamp {
        "2030-01-02T03:04:05Z".parse().unwrap()
    }

    #[test]
    fn a_return_is_good_for_its_nonce_and_its_key_only() {
        let authority = Authority::load(&Authority::generate(now()).unwrap()).unwrap();
        let issue = |key: &AgentKey| {
            let (csr, hour) = (key.csr_der().unwrap(), Duration::from_secs(3600));
            let pem = authority.issue_agent(&csr, &"a-1".parse().unwrap(), now(), hour).unwrap();
            certificate_from_pem("a certificate", &pem).unwrap()
        };
        let (key, other) = (AgentKey::generate().unwrap(), AgentKey::generate().unwrap());
        let (certificate, of_other) = (issue(&key), issue(&other));

        let signed = seal_return(&key, b"nonce").unwrap();

        let csr = open_return(&certificate, b"nonce", &signed).unwrap();
        assert_eq!(crate::requested_fingerprint(&csr).unwrap(), key.fingerprint());
        let hello = crate::seal_hello(&key, &"r-1".parse().unwrap(), b"nonce", FromAgent::Seen { generation: 1 });
        let refused = [
            open_return(&certificate, b"other", &signed),
            open_return(&of_other, b"nonce", &signed),
            open_return(&certificate, b"nonce", &hello.unwrap()),
            open_return(&certificate, b"nonce", &Signed::default()),
        ];
        assert!(refused.iter().all(|refused| matches!(refused, Err(Untrusted::Signature))), "{refused:?}");
    }

    #[test]
    fn an_expired_certificate_still_names_its_agent_and_a_foreign_one_nobody() {
        let [ours, theirs] = [(); 2].map(|()| Authority::load(&Authority::generate(now()).unwrap()).unwrap());
        let csr = AgentKey::generate().unwrap().csr_der().unwrap();
        let issue = |authority: &Authority| {
            let pem = authority.issue_agent(&csr, &"a-1".parse().unwrap(), now(), Duration::from_secs(60)).unwrap();
            certificate_from_pem("a certificate", &pem).unwrap()
        };
        let certificates = AgentCertificates::of([&ours]).unwrap();
        let later = now() + Duration::from_secs(3600);

        assert!(certificates.verify(&issue(&ours), later).is_err());
        let (agent, expired_at) = certificates.verify_expired(&issue(&ours)).unwrap();
        assert_eq!((agent.as_str(), expired_at), ("a-1", now() + Duration::from_secs(60)));
        assert!(certificates.verify_expired(&issue(&theirs)).is_err());
    }
}
