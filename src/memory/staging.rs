//! The bytes of a call: a list of blocks that threads pass to each other by value.

use super::block::Block;
use super::element::Target;
#[cfg(test)]
use super::pool::Pool;

/// A buffer as a list of blocks, cut at the chunk boundaries of its schedule.
#[derive(Debug, Default)]
pub struct Staging {
    /// The blocks in order.
    pub blocks: Vec<Block>,
}

impl Staging {
    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.blocks.iter().map(Block::len).sum()
    }

    /// Copies `bytes` into blocks of `block_bytes`.
    #[cfg(test)]
    pub fn filled(pool: &Pool, bytes: &[u8], block_bytes: usize) -> Staging {
        let blocks = bytes
            .chunks(block_bytes.max(1))
            .map(|part| {
                let mut block = pool.block(part.len()).expect("there is memory");
                block.bytes_mut().copy_from_slice(part);
                block
            })
            .collect();
        Staging { blocks }
    }

    /// Copies the blocks out; `out` must have exactly [`len`](Staging::len) bytes.
    pub fn copy_to<'a>(&self, out: impl Into<Target<'a>>) {
        self.copy_to_all([out.into()]);
    }

    /// Copies the blocks out to these buffers, one after the other. Together they must have exactly
    /// [`len`](Staging::len) bytes.
    pub fn copy_to_all<'a>(&self, outs: impl IntoIterator<Item = Target<'a>>) {
        let all = self.len();
        let mut blocks = self.blocks.iter().map(Block::bytes);
        let mut left: &[u8] = &[];
        for mut out in outs {
            while out.len() > 0 {
                if left.is_empty() {
                    let Some(block) = blocks.next() else { return };
                    left = block;
                }
                let len = left.len().min(out.len());
                let (head, tail) = out.split_at(len);
                head.write(&left[..len], all);
                (out, left) = (tail, &left[len..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_is_a_copy_there_and_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        let staging = Staging::filled(&Pool::new(), &bytes, 100);
        assert_eq!(staging.blocks.iter().map(Block::len).collect::<Vec<_>>(), [100, 100, 56]);
        let mut back = vec![0; 256];
        staging.copy_to(&mut back[..]);
        assert_eq!(back, bytes);
        let cuts = [0, 1, 99, 0, 150, 6];
        let mut parts = cuts.map(|len| vec![0; len]);
        staging.copy_to_all(parts.iter_mut().map(|part| Target::Bytes(part)));
        assert_eq!(parts.concat(), bytes);
    }
}
