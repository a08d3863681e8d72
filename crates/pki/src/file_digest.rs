//! The digest of a file, of any size, in a bounded amount of memory.

use std::io::{self, Read};

use aws_lc_rs::digest;

use crate::secret::hex;

const PIECE_BYTES: usize = 64 * 1024;

/// SHA-256 of a file, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileDigest {
    pub(crate) sha256: [u8; 32],
    bytes: u64,
}

impl FileDigest {
    /// Reads to the end.
    pub fn of(mut file: impl Read) -> io::Result<Self> {
        let (mut context, mut piece, mut bytes) =
            (digest::Context::new(&digest::SHA256), vec![0; PIECE_BYTES].into_boxed_slice(), 0);
        loop {
            let read = match file.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            context.update(&piece[..read]);
            bytes += read as u64;
        }
        let sha256 = context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes");
        Ok(Self { sha256, bytes })
    }

    /// In hexadecimal digits.
    pub fn sha256(&self) -> String {
        hex(&self.sha256)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_in_pieces() {
        let large = vec![7; 3 * PIECE_BYTES + 1];

        let digest = FileDigest::of(&large[..]).unwrap();

        assert_eq!(digest.sha256, digest::digest(&digest::SHA256, &large).as_ref());
        assert_eq!(digest.bytes(), large.len() as u64);
        let empty = FileDigest::of(io::empty()).unwrap();
        assert_eq!(empty.sha256(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
