//! The bytes of a call: a list of blocks that threads pass to each other by value.

use super::block::Block;
use super::copying::copy;
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
    pub fn copy_to(&self, out: &mut [u8]) {
        let mut rest = out;
        for block in &self.blocks {
            let (head, tail) = rest.split_at_mut(block.len());
            copy(head, block.bytes());
            rest = tail;
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
        staging.copy_to(&mut back);
        assert_eq!(back, bytes);
    }
}
