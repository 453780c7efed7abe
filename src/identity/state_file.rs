//! The durable state of a node: opaque bytes in a file that is replaced atomically.

use super::home::make_private_dir;
use super::private_file;
use super::problem::{FileContent, IdentityProblem};
use crate::wire::{Malformed, Reader};
use std::io;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

/// The durable state of one identity in one namespace. Only the process that holds the identity may
/// use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    path: PathBuf,
}

/// Most bytes of state. An accepted View that commits as many operations as possible has about 80
/// KiB, and the paths between as many machines as possible have 230 KiB; usually they have a few
/// hundred bytes.
pub const STATE_BYTES_MAX: usize = 256 * 1024;

impl StateFile {
    /// The file at `path`, which need not exist.
    pub fn at(path: impl Into<PathBuf>) -> StateFile {
        StateFile { path: path.into() }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The state that was saved last; `None` if none was ever saved. Blocks on the disk.
    ///
    /// A damaged or unsafe file is an error and is not changed: a node that starts without its
    /// state breaks its promises, so a person must decide that. Must be called before the first
    /// `save`, because it also removes the files of killed writers.
    pub fn load(&self) -> Result<Option<Vec<u8>>, IdentityProblem> {
        // Only leftovers, so a failure does no harm.
        let _ = private_file::sweep(&self.path);
        let bytes_max = (HEADER_BYTES + STATE_BYTES_MAX) as u64;
        let Some(bytes) = private_file::read(&self.path, FileContent::State, bytes_max)? else {
            return Ok(None);
        };
        let (path, content) = (self.path.clone(), FileContent::State);
        decode_state(&bytes).map(Some).map_err(|fault| match fault {
            Malformed::Truncated => IdentityProblem::Truncated { path, content },
            Malformed::Trailing | Malformed::TooLong => IdentityProblem::TooLong { path, content },
            Malformed::UnknownTag => IdentityProblem::UnknownVersion { path },
            Malformed::Inconsistent => IdentityProblem::Damaged { path, content },
        })
    }

    /// Replaces the state. After `Ok` the new state survives a power failure. After an error, or a
    /// crash before that, the file holds the old or the new state. Blocks on the disk, so it
    /// belongs on a separate thread.
    ///
    /// Fails with `InvalidInput` for more than [`STATE_BYTES_MAX`] bytes.
    pub fn save(&self, state: &[u8]) -> io::Result<()> {
        let bytes = encode_state(state).ok_or(io::ErrorKind::InvalidInput)?;
        match private_file::replace(&self.path, &bytes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.save_in_new_dir(&bytes),
            result => result,
        }
    }

    fn save_in_new_dir(&self, bytes: &[u8]) -> io::Result<()> {
        let directory = self.path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        make_private_dir(directory).map_err(io::Error::other)?;
        private_file::replace(&self.path, bytes)
    }
}

/// The bytes of a state file: magic, version, length, XXH3-128 of the contents, contents. `None` if
/// the state is too long.
pub fn encode_state(state: &[u8]) -> Option<Vec<u8>> {
    let len = u32::try_from(state.len()).ok().filter(|_| state.len() <= STATE_BYTES_MAX)?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + state.len());
    bytes.extend_from_slice(MAGIC);
    bytes.push(VERSION);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&xxh3_128(state).to_le_bytes());
    bytes.extend_from_slice(state);
    Some(bytes)
}

/// Decodes a state file. `UnknownTag` means another version, `Inconsistent` means damage.
pub fn decode_state(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut r = Reader::new(bytes);
    if r.take(MAGIC.len())? != MAGIC {
        return Err(Malformed::Inconsistent);
    }
    if r.u8()? != VERSION {
        return Err(Malformed::UnknownTag);
    }
    let (len, sum) = (r.u32()? as usize, u128::from_le_bytes(r.array()?));
    if len > STATE_BYTES_MAX {
        return Err(Malformed::Inconsistent);
    }
    let state = r.take(len)?;
    r.finish()?;
    if xxh3_128(state) == sum { Ok(state.to_vec()) } else { Err(Malformed::Inconsistent) }
}

const MAGIC: &[u8; 7] = b"plstate";
const VERSION: u8 = 5;
const HEADER_BYTES: usize = MAGIC.len() + 1 + 4 + 16;

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn file(scratch: &Scratch) -> StateFile {
        StateFile::at(scratch.path().join("inner/state-default.bin"))
    }

    #[test]
    fn what_was_saved_last_is_loaded() {
        let scratch = Scratch::new();
        let file = file(&scratch);
        assert_eq!(file.load(), Ok(None));
        for state in [b"".to_vec(), b"one".to_vec(), vec![7; STATE_BYTES_MAX]] {
            file.save(&state).expect("saved");
            assert_eq!(file.load(), Ok(Some(state)));
        }
    }

    #[test]
    fn too_much_state_is_refused_and_the_old_one_stays() {
        let scratch = Scratch::new();
        let file = file(&scratch);
        file.save(b"old").expect("saved");
        let refused = file.save(&vec![0; STATE_BYTES_MAX + 1]).map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::InvalidInput));
        assert_eq!(file.load(), Ok(Some(b"old".to_vec())));
    }

    #[test]
    fn each_damage_has_its_name_and_the_file_is_left_alone() {
        let scratch = Scratch::new();
        let (file, content) = (file(&scratch), FileContent::State);
        file.save(b"promised 17").expect("saved");
        let path = file.path().to_owned();
        let good = fs::read(&path).expect("readable");
        let truncated = IdentityProblem::Truncated { path: path.clone(), content };
        let too_long = IdentityProblem::TooLong { path: path.clone(), content };
        let damaged = IdentityProblem::Damaged { path: path.clone(), content };
        let unknown = IdentityProblem::UnknownVersion { path: path.clone() };
        let empty = IdentityProblem::Empty { path: path.clone(), content };
        type Change = fn(&mut Vec<u8>);
        let changes: [(Change, _); 6] = [
            (|bytes| bytes.truncate(20), &truncated),
            (|bytes| bytes.push(0), &too_long),
            (|bytes| bytes[30] ^= 1, &damaged),
            (|bytes| bytes[7] = VERSION + 1, &unknown),
            (Vec::clear, &empty),
            (|bytes| bytes.resize(70_000, 0), &too_long),
        ];
        for (change, problem) in changes {
            let mut bytes = good.clone();
            change(&mut bytes);
            fs::write(&path, &bytes).expect("written");
            assert_eq!(file.load().as_ref(), Err(problem));
            assert_eq!(fs::read(&path).ok(), Some(bytes), "the file was touched: {problem}");
        }
    }

    #[test]
    fn leftovers_of_a_killed_writer_go_when_the_next_one_starts() {
        let scratch = Scratch::new();
        let file = file(&scratch);
        file.save(b"whole").expect("saved");
        let leftover = scratch.path().join("inner/.state-default.bin.0000000000000001.tmp");
        fs::write(&leftover, b"half").expect("written");
        assert_eq!(file.load(), Ok(Some(b"whole".to_vec())));
        assert!(!leftover.exists());
    }

    #[test]
    fn no_flipped_bit_and_no_cut_goes_unseen() {
        let bytes = encode_state(b"promised 17").expect("short");
        for end in 0..bytes.len() {
            assert_eq!(decode_state(&bytes[..end]), Err(Malformed::Truncated), "cut at {end}");
        }
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_state(&flipped).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn state_survives_its_bytes(state in proptest::collection::vec(any::<u8>(), 0..500)) {
            prop_assert_eq!(
                encode_state(&state).map(|bytes| decode_state(&bytes)),
                Some(Ok(state))
            );
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(tail in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode_state(&tail);
            let _ = decode_state(&[MAGIC.as_slice(), &[VERSION], &tail].concat());
        }
    }
}
