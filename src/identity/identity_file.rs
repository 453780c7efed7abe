//! The text of an identity file: one line `potluck-ed25519-v1 <seed> <checksum>`, both in
//! lower-case hexadecimal.
//!
//! The checksum is the first eight bytes of the SHA-256 of everything before it. It only detects
//! damage; the file permissions protect the secret.

use super::keypair::Identity;
use data_encoding::HEXLOWER;
use derive_more::Display;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// Why a text is not an identity file. Never contains the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum IdentityTextError {
    /// It ends too early.
    #[display("the identity ends too early")]
    Truncated,
    /// It continues after its line.
    #[display("the identity has bytes behind its end")]
    TooLong,
    /// Its checksum does not match.
    #[display("the identity's checksum does not match")]
    Damaged,
    /// It is intact, but its first word is not `potluck-ed25519-v1`.
    #[display("the identity is of another version of potluck")]
    UnknownVersion,
}

/// The file text of an identity.
pub fn encode_identity(identity: &Identity) -> Zeroizing<String> {
    // Allocated at full size, because a growing `String` would leave copies of the seed behind.
    let mut text = Zeroizing::new(String::with_capacity(TEXT_BYTES));
    text.push_str(FORMAT);
    text.push(' ');
    HEXLOWER.encode_append(&*identity.seed(), &mut text);
    text.push(' ');
    let sum = checksum(text.as_bytes());
    HEXLOWER.encode_append(&sum, &mut text);
    text.push('\n');
    text
}

/// Parses the text. Accepts exactly the output of [`encode_identity`].
pub fn decode_identity(text: &[u8]) -> Result<Identity, IdentityTextError> {
    if text.len() < TEXT_BYTES {
        return Err(if is_whole(text) {
            IdentityTextError::UnknownVersion
        } else {
            IdentityTextError::Truncated
        });
    }
    if !is_whole(text) {
        let line_end = text.iter().position(|byte| *byte == b'\n');
        let longer = line_end.is_some_and(|end| is_whole(&text[..=end])) && text.len() > TEXT_BYTES;
        return Err(if longer { IdentityTextError::TooLong } else { IdentityTextError::Damaged });
    }
    let Some(fields) =
        text.strip_prefix(FORMAT.as_bytes()).and_then(|rest| rest.strip_prefix(b" "))
    else {
        return Err(IdentityTextError::UnknownVersion);
    };
    let mut seed = Zeroizing::new([0; SEED_BYTES]);
    // The length is checked first, because `decode_mut` needs buffers of the exact length.
    let hex = fields
        .get(..2 * SEED_BYTES)
        .filter(|_| text.len() == TEXT_BYTES)
        .ok_or(IdentityTextError::Damaged)?;
    match HEXLOWER.decode_mut(hex, &mut *seed) {
        Ok(SEED_BYTES) => Ok(Identity::from_seed(&seed)),
        _ => Err(IdentityTextError::Damaged),
    }
}

impl std::error::Error for IdentityTextError {}

/// Whether the text is one line that ends with a space and the checksum of everything before it.
fn is_whole(text: &[u8]) -> bool {
    let Some(line) = text.strip_suffix(b"\n") else { return false };
    let Some(body_bytes) = line.len().checked_sub(2 * SUM_BYTES) else { return false };
    let (body, sum) = line.split_at(body_bytes);
    body.ends_with(b" ") && HEXLOWER.encode(&checksum(body)).as_bytes() == sum
}

fn checksum(body: &[u8]) -> [u8; SUM_BYTES] {
    let digest = Sha256::digest(body);
    std::array::from_fn(|i| digest[i])
}

const FORMAT: &str = "potluck-ed25519-v1";
const SEED_BYTES: usize = 32;
const SUM_BYTES: usize = 8;
const TEXT_BYTES: usize = FORMAT.len() + 1 + 2 * SEED_BYTES + 1 + 2 * SUM_BYTES + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text() -> Vec<u8> {
        encode_identity(&Identity::from_seed(&std::array::from_fn(|i| i as u8))).as_bytes().to_vec()
    }

    fn with_sum(body: &str) -> Vec<u8> {
        format!("{body}{}\n", HEXLOWER.encode(&checksum(body.as_bytes()))).into_bytes()
    }

    fn fault(text: &[u8]) -> Option<IdentityTextError> {
        decode_identity(text).err()
    }

    #[test]
    fn an_identity_survives_its_file() {
        let identity = decode_identity(&text()).expect("our own text");
        assert_eq!(*identity.seed(), std::array::from_fn::<u8, 32, _>(|i| i as u8));
        assert_eq!(text().len(), TEXT_BYTES);
    }

    #[test]
    fn a_cut_file_is_truncated_and_a_flipped_bit_is_damage() {
        let text = text();
        for end in 0..text.len() {
            assert_eq!(fault(&text[..end]), Some(IdentityTextError::Truncated), "cut at {end}");
        }
        for bit in 0..8 * text.len() {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(fault(&flipped), Some(IdentityTextError::Damaged), "bit {bit}");
        }
    }

    #[test]
    fn a_second_line_and_another_version_are_told_apart_from_damage() {
        let mut longer = text();
        longer.extend_from_slice(b"\n");
        assert_eq!(fault(&longer), Some(IdentityTextError::TooLong));
        assert_eq!(
            fault(&with_sum("potluck-ed25519-v2 something ")),
            Some(IdentityTextError::UnknownVersion)
        );
        assert_eq!(
            fault(&with_sum(&format!("potluck-ed25519-v2 {} ", "a".repeat(99)))),
            Some(IdentityTextError::UnknownVersion)
        );
        assert_eq!(
            fault(&with_sum(&format!("{FORMAT} {} ", "g".repeat(64)))),
            Some(IdentityTextError::Damaged)
        );
        assert_eq!(
            fault(&with_sum(&format!("{FORMAT} {} ", "a".repeat(66)))),
            Some(IdentityTextError::Damaged)
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(
            body in proptest::collection::vec(any::<u8>(), 0..200),
            text in "[ -~]{0,120}",
        ) {
            let _ = decode_identity(&body);
            let _ = decode_identity(&with_sum(&text));
        }
    }
}
