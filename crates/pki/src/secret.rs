//! Random secrets, digests and constant-time comparison.

use aws_lc_rs::{constant_time, digest, rand};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Domain separation: the hash of a secret is useless where another SHA-256 is expected.
const SECRET_DOMAIN: &str = "proctor secret v1\0";

pub(crate) const SECRET_BYTES: usize = 32;

/// 32 random bytes in base64url.
pub fn random_secret() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<SECRET_BYTES>())
}

/// The stored form of a secret. Only for secrets of [`random_secret`], not for passwords: it is fast and unsalted.
pub fn hash_secret(secret: &str) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(SECRET_DOMAIN.as_bytes());
    context.update(secret.as_bytes());
    hex(context.finish().as_ref())
}

/// Whether two texts are equal, in a time that reveals only their lengths.
pub fn secrets_match(a: &str, b: &str) -> bool {
    constant_time::verify_slices_are_equal(a.as_bytes(), b.as_bytes()).is_ok()
}

pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).expect("the operating system always gives random bytes");
    bytes
}

/// The SHA-256 of everything that a reader yields.
pub fn sha256_of(mut reader: impl std::io::Read) -> std::io::Result<[u8; 32]> {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(context.finish().as_ref().try_into().expect("a SHA-256 has 32 bytes")),
            length => context.update(&buffer[..length]),
        }
    }
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// In lower case.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        .collect()
}

/// The inverse of [`hex`]; None for any other text.
pub fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).filter(|_| !digit.is_ascii_uppercase());
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

/// A SHA-256 in hexadecimal digits, in lower case.
pub(crate) fn parse_fingerprint(text: &str) -> Option<String> {
    let legal = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    legal.then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_known_one() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn hexadecimal_digits_are_read_back_and_nothing_else_is() {
        let bytes: Vec<u8> = (0..=255).collect();

        assert_eq!(parse_hex(&hex(&bytes)), Some(bytes));
        assert_eq!(["", "a", "0g", "AB", "+1", "é"].map(parse_hex), [Some(vec![]), None, None, None, None, None]);
    }

    #[test]
    fn secrets_are_long_and_never_the_same() {
        let (one, two) = (random_secret(), random_secret());

        assert_eq!(one.len(), 43);
        assert_ne!(one, two);
    }

    #[test]
    fn a_hash_fits_only_its_own_secret_and_is_not_the_plain_digest() {
        let secret = random_secret();

        assert!(secrets_match(&hash_secret(&secret), &hash_secret(&secret)));
        assert!(!secrets_match(&hash_secret(&secret), &hash_secret("other")));
        assert!(!secrets_match("a", "ab"));
        assert_ne!(hash_secret(&secret), sha256_hex(secret.as_bytes()));
    }
}
