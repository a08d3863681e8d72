//! Enrolments that pass through: how many at the same time, and which gives way.
//!
//! Promised: one network has a few at the same time; if all slots are taken, the longest-running one gives way to a
//! new one, so peers that merely hold a slot keep nobody out. Absent: how long one may take (see `listener`).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

const SLOTS: usize = 64;
/// Per address; for IPv6 per network, whose addresses cost nothing.
const OF_NETWORK_MAX: usize = 4;

#[derive(Clone, Debug, Default)]
pub(crate) struct Enrolments(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The oldest first.
    under_way: BTreeMap<u64, (IpAddr, CancellationToken)>,
    begun: u64,
}

/// Of one enrolment, until it is dropped.
#[derive(Debug)]
pub(crate) struct EnrolmentSlot {
    enrolments: Enrolments,
    number: u64,
    /// Another one takes the slot.
    pub(crate) gives_way: CancellationToken,
}

impl Enrolments {
    /// None if too many come from there.
    pub(crate) fn begin(&self, peer: IpAddr) -> Option<EnrolmentSlot> {
        let (network, mut state) = (network(peer), self.0.lock());
        let of_network = state.under_way.values().filter(|(other, _)| *other == network).count();
        if of_network >= OF_NETWORK_MAX {
            return None;
        }
        if state.under_way.len() >= SLOTS {
            let (_, (_, oldest)) = state.under_way.pop_first()?;
            oldest.cancel();
        }
        state.begun += 1;
        let (number, gives_way) = (state.begun, CancellationToken::new());
        state.under_way.insert(number, (network, gives_way.clone()));
        Some(EnrolmentSlot { enrolments: self.clone(), number, gives_way })
    }
}

impl Drop for EnrolmentSlot {
    fn drop(&mut self) {
        self.enrolments.0.lock().under_way.remove(&self.number);
    }
}

/// Whoever has one address of an IPv6 /64 has all of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(number: usize) -> IpAddr {
        [192, 0, 2, u8::try_from(number).unwrap()].into()
    }

    #[test]
    fn peers_that_hold_all_slots_give_way_the_oldest_first() {
        let enrolments = Enrolments::default();
        let held: Vec<_> = (0..SLOTS).map(|number| enrolments.begin(v4(number)).unwrap()).collect();

        let honest = enrolments.begin(v4(200)).expect("a slot");
        let _another = enrolments.begin(v4(201)).expect("a slot");

        let gone: Vec<_> = held.iter().map(|slot| slot.gives_way.is_cancelled()).collect();
        assert!(gone[0] && gone[1] && !gone[2..].contains(&true));
        assert!(!honest.gives_way.is_cancelled());
        drop((held, honest));
        assert_eq!(enrolments.0.lock().under_way.len(), 1, "what is over is given back once");
    }

    #[test]
    fn one_network_has_a_few_slots() {
        let enrolments = Enrolments::default();
        let of = |texts: &[&str]| -> Vec<_> {
            texts.iter().filter_map(|text| enrolments.begin(text.parse().unwrap())).collect()
        };

        let one =
            of(&["2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:1:9::3", "2001:db8:0:1::4", "2001:db8:0:1::5"]);
        let other = of(&["2001:db8:0:2::1"]);
        let v4 = of(&["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"]);

        assert_eq!((one.len(), other.len(), v4.len()), (OF_NETWORK_MAX, 1, OF_NETWORK_MAX + 1));
        drop(one);
        assert_eq!(of(&["2001:db8:0:1::6"]).len(), 1);
    }
}
