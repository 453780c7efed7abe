//! Memory whose size depends on a call or on the network: where there is none, the call ends with
//! an error, and the process goes on.
//!
//! Such memory comes from here or from a [`Pool`](super::pool::Pool), which allocates here too.
//! Memory with a constant bound below 1 MiB is allocated as usual.

use super::element::Element;

/// This many bytes of memory could not be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The bytes that were asked for.
    pub bytes: usize,
}

/// `len` elements of value 0. The system maps their pages at the first access only.
///
/// # Errors
/// [`OutOfMemory`].
pub fn zeroed<T: Element>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    bytemuck::allocation::try_zeroed_vec(len).map_err(|()| OutOfMemory::of::<T>(len))
}

/// `items`, of which there are at most `len`.
///
/// # Errors
/// [`OutOfMemory`].
pub fn listed<T>(len: usize, items: impl Iterator<Item = T>) -> Result<Vec<T>, OutOfMemory> {
    let mut list = Vec::new();
    room_for(&mut list, len)?;
    list.extend(items.take(len));
    Ok(list)
}

/// Makes room for a list of `len` items; the list itself stays as it is.
///
/// # Errors
/// [`OutOfMemory`].
pub fn room_for<T>(list: &mut Vec<T>, len: usize) -> Result<(), OutOfMemory> {
    let more = len.saturating_sub(list.len());
    list.try_reserve_exact(more).map_err(|_| OutOfMemory::of::<T>(len))
}

impl OutOfMemory {
    /// For `len` items of this type.
    pub fn of<T>(len: usize) -> OutOfMemory {
        OutOfMemory { bytes: len.saturating_mul(size_of::<T>()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused_and_says_how_much_it_was() {
        let len = isize::MAX as usize / 4;
        assert_eq!(zeroed::<u64>(len), Err(OutOfMemory { bytes: 8 * len }));
        assert_eq!(zeroed::<f64>(usize::MAX), Err(OutOfMemory { bytes: usize::MAX }));
        assert_eq!(zeroed::<u8>(usize::MAX / 2), Err(OutOfMemory { bytes: usize::MAX / 2 }));
        let mut list = vec![1u8, 2];
        assert_eq!(room_for(&mut list, usize::MAX), Err(OutOfMemory { bytes: usize::MAX }));
        assert_eq!(list, [1, 2]);
        assert!(listed(usize::MAX, [1u16].into_iter()).is_err());
    }

    #[test]
    fn what_there_is_is_given() {
        assert_eq!(zeroed::<f32>(3), Ok(vec![0.0; 3]));
        assert_eq!(zeroed::<u8>(0), Ok(Vec::new()));
        assert_eq!(listed(2, 5..9), Ok(vec![5, 6]));
        let mut list = vec![7u8];
        room_for(&mut list, 1000).expect("there is some");
        assert!(list.capacity() >= 1000 && list == [7]);
    }
}
