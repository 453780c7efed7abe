//! The lengths of the parts of an uneven call, which its members exchange before its data.

use super::call::CallKind;
use super::rank::{MEMBERS_MAX, Rank};

/// The lengths of all parts of an uneven call, in elements.
///
/// ```text
///               to rank 0   1   2
/// row of rank 0:      [ 2   0   5 ]      the lengths that rank 0 sends
/// row of rank 1:      [ 1   1   1 ]
/// row of rank 2:      [ 0   0   9 ]
///                       '- column of rank 0: the lengths that it receives
/// ```
///
/// The row of an `all_gather_uneven` has the length of the rank's buffer in each place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths {
    size: usize,
    /// Row after row.
    all: Vec<usize>,
}

impl Lengths {
    /// From the rows of `size` ranks in rank order. `None` if there are not that many lengths, or
    /// if no machine could have as many elements.
    pub fn new(size: usize, rows: &[u64]) -> Option<Lengths> {
        if !(1..=MEMBERS_MAX).contains(&size) || rows.len() != size * size {
            return None;
        }
        let all: Vec<usize> =
            rows.iter().map(|length| usize::try_from(*length).ok()).collect::<Option<_>>()?;
        let total = all.iter().try_fold(0usize, |sum, length| sum.checked_add(*length))?;
        isize::try_from(total).ok()?;
        Some(Lengths { size, all })
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The length of the part from one rank to another; both are ranks of the call's group.
    pub fn between(&self, from: Rank, to: Rank) -> usize {
        self.all[from.index() * self.size + to.index()]
    }

    /// The parts that a rank receives from all, in rank order.
    pub fn column(&self, to: Rank) -> impl Iterator<Item = usize> {
        self.all.iter().skip(to.index()).step_by(self.size).copied()
    }

    /// The parts that a rank sends to all, in rank order.
    #[cfg(any(feature = "gloo", test))]
    pub fn row(&self, from: Rank) -> &[usize] {
        &self.all[from.index() * self.size..][..self.size]
    }

    /// The parts of the result of a call of this kind at rank `me`, in rank order.
    pub fn result(&self, kind: CallKind, me: Rank) -> Vec<usize> {
        match kind {
            CallKind::AllGatherUneven => self.column(Rank(0)).collect(),
            _ => self.column(me).collect(),
        }
    }

    /// The elements that all members of a call of this kind send.
    pub fn elements_of(&self, kind: CallKind) -> usize {
        match kind {
            CallKind::AllGatherUneven => self.column(Rank(0)).sum(),
            _ => self.all.iter().sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_what_is_sent_and_columns_what_is_received() {
        let lengths = Lengths::new(3, &[2, 0, 5, 1, 1, 1, 0, 0, 9]).expect("three rows");
        let of = |kind| (lengths.elements_of(kind), lengths.result(kind, Rank(1)));
        assert_eq!(of(CallKind::AllToAllUneven), (19, vec![0, 1, 0]));
        assert_eq!(of(CallKind::AllGatherUneven), (3, vec![2, 1, 0]));
        assert_eq!(lengths.row(Rank(0)), [2, 0, 5]);
        assert_eq!(lengths.column(Rank(2)).collect::<Vec<_>>(), [5, 1, 9]);
        assert_eq!(lengths.between(Rank(1), Rank(0)), 1);
    }

    #[test]
    fn what_no_machine_has_or_is_no_square_is_refused() {
        let half = isize::MAX as u64 / 2;
        assert!(Lengths::new(2, &[half, half, 1, 0]).is_some());
        for rows in [&[half, half, 1, 1][..], &[u64::MAX, 1, 0, 0], &[1, 2, 3], &[], &[0; 5]] {
            assert_eq!(Lengths::new(2, rows), None, "{rows:?}");
        }
        let more = MEMBERS_MAX + 1;
        assert!(
            Lengths::new(0, &[]).is_none() && Lengths::new(more, &vec![0; more * more]).is_none()
        );
    }
}
