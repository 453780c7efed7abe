//! Layer: Words.
//!
//! What travels on a control link for a circuit that goes over it.

use crate::identity::MemberId;
use crate::view::MEMBERS_MAX;
use crate::wire::{Decode, Encode, Malformed, Reader, put_blob, put_list};

/// One step of one circuit on one link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RelayFrame {
    /// Which circuit.
    pub circuit: Circuit,
    /// What of it.
    pub body: RelayBody,
}

/// A circuit as the two ends of one link call it. On its next link it has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Circuit {
    /// It came to this link from the side that sends this frame.
    pub by_sender: bool,
    /// Never used twice by one side in one life.
    pub number: u32,
}

/// What becomes of a circuit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RelayBody {
    /// It begins. Its stations in order: who opens it, those who pass it on, whom it is for; 3 to
    /// 16, each once.
    Open(Vec<MemberId>),
    /// 1 to 16384 bytes of what its ends say to each other.
    Bytes(Vec<u8>),
    /// Its receiver has taken frames that cost so much, at least 1; see [`cost`].
    Took(u32),
    /// It is over, or could not begin.
    Close,
}

/// Most stations of a circuit, both ends among them: no way within a View needs more.
pub const STATIONS_MAX: usize = MEMBERS_MAX;

/// What a circuit may have under way in one direction before its receiver has said that it took it:
/// a whole control message and some.
pub const WINDOW: u32 = 128 * 1024;

/// What a frame costs of the window besides its bytes, so that many small ones are as dear as few
/// large ones.
pub const FRAME_COST: u32 = 256;

/// What so many bytes in one frame cost of the window.
pub fn cost(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(FRAME_COST)
}

impl RelayBody {
    /// Most bytes in one frame.
    pub const BYTES_MAX: usize = 16 * 1024;
}

impl Encode for RelayFrame {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.circuit.by_sender));
        out.extend_from_slice(&self.circuit.number.to_le_bytes());
        match &self.body {
            RelayBody::Open(stations) => {
                out.push(1);
                put_list(out, stations);
            }
            RelayBody::Bytes(bytes) => {
                out.push(2);
                put_blob(out, bytes);
            }
            RelayBody::Took(cost) => {
                out.push(3);
                out.extend_from_slice(&cost.to_le_bytes());
            }
            RelayBody::Close => out.push(4),
        }
    }
}

impl Decode for RelayFrame {
    fn decode(r: &mut Reader<'_>) -> Result<RelayFrame, Malformed> {
        let circuit = Circuit { by_sender: r.bool()?, number: r.u32()? };
        let body = match r.u8()? {
            1 => RelayBody::Open(stations_from(r)?),
            2 => match r.blob(RelayBody::BYTES_MAX)? {
                [] => return Err(Malformed::Inconsistent),
                bytes => RelayBody::Bytes(bytes.to_vec()),
            },
            3 => match r.u32()? {
                0 => return Err(Malformed::Inconsistent),
                cost => RelayBody::Took(cost),
            },
            4 => RelayBody::Close,
            _ => return Err(Malformed::UnknownTag),
        };
        Ok(RelayFrame { circuit, body })
    }
}

fn stations_from(r: &mut Reader<'_>) -> Result<Vec<MemberId>, Malformed> {
    let stations: Vec<MemberId> = r.list(STATIONS_MAX)?;
    let once = stations.iter().enumerate().all(|(i, id)| !stations[..i].contains(id));
    if once && stations.len() > 2 { Ok(stations) } else { Err(Malformed::Inconsistent) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::member_id;
    use crate::wire::testing::assert_codec;

    fn frame(body: RelayBody) -> RelayFrame {
        RelayFrame { circuit: Circuit { by_sender: true, number: 7 }, body }
    }

    #[test]
    fn every_frame_survives_the_wire() {
        for body in [
            RelayBody::Open((1..=3).map(member_id).collect()),
            RelayBody::Open((1..=16).map(member_id).collect()),
            RelayBody::Bytes(vec![5]),
            RelayBody::Bytes(vec![9; 300]),
            RelayBody::Took(1),
            RelayBody::Close,
        ] {
            assert_codec(&frame(body));
        }
        assert_codec(&RelayFrame {
            circuit: Circuit { by_sender: false, number: u32::MAX },
            body: RelayBody::Close,
        });
    }

    #[test]
    fn what_no_honest_node_sends_is_refused() {
        let of = |ids: &[u8]| RelayBody::Open(ids.iter().copied().map(member_id).collect());
        for (body, why) in [
            (of(&[]), Malformed::Inconsistent),
            (of(&[1, 2]), Malformed::Inconsistent),
            (of(&[1, 2, 1]), Malformed::Inconsistent),
            (RelayBody::Open((1..=17).map(member_id).collect()), Malformed::TooLong),
            (RelayBody::Bytes(Vec::new()), Malformed::Inconsistent),
            (RelayBody::Bytes(vec![0; RelayBody::BYTES_MAX + 1]), Malformed::TooLong),
            (RelayBody::Took(0), Malformed::Inconsistent),
        ] {
            assert_eq!(
                RelayFrame::from_bytes(&frame(body.clone()).to_bytes()),
                Err(why),
                "{body:?}"
            );
        }
        assert_eq!(RelayFrame::from_bytes(&[1, 0, 0, 0, 0, 5]), Err(Malformed::UnknownTag));
    }
}
