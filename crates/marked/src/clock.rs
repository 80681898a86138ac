//! The time of the API server, as far as its answers say it. Times of Pods and attempts are by the cluster's clocks.

use std::time::{Duration, SystemTime};

/// Answers have whole seconds.
const SECOND: Duration = Duration::from_secs(1);

/// How far the API server's clock is from this host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Skew {
    /// Not so far that an answer would show it.
    #[default]
    None,
    /// At least so far ahead.
    Ahead(Duration),
    /// At least so far behind.
    Behind(Duration),
}

impl Skew {
    /// By an answer with this date that came at this time of the host.
    #[must_use]
    pub fn of(date: SystemTime, here: SystemTime) -> Self {
        match date.duration_since(here) {
            Ok(Duration::ZERO) => Self::None,
            Ok(ahead) => Self::Ahead(ahead),
            Err(behind) => match behind.duration().checked_sub(SECOND) {
                None | Some(Duration::ZERO) => Self::None,
                Some(behind) => Self::Behind(behind),
            },
        }
    }

    /// A time of this host by the API server's clock, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn unix_ns(self, here: SystemTime) -> u64 {
        self.shifted(nanoseconds(here.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
    }

    /// A time of this host by the API server's clock. Both are nanoseconds since the Unix epoch.
    #[must_use]
    pub fn shifted(self, here_ns: u64) -> u64 {
        match self {
            Self::None => here_ns,
            Self::Ahead(by) => here_ns.saturating_add(nanoseconds(by)),
            Self::Behind(by) => here_ns.saturating_sub(nanoseconds(by)),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    #[test]
    fn a_clock_is_skewed_if_its_second_is_another() {
        assert_eq!(Skew::of(at(5000), at(5000)), Skew::None);
        assert_eq!(Skew::of(at(5000), at(5999)), Skew::None);
        assert_eq!(Skew::of(at(5000), at(4900)), Skew::Ahead(Duration::from_millis(100)));
        assert_eq!(Skew::of(at(5000), at(9500)), Skew::Behind(Duration::from_millis(3500)));
    }

    proptest! {
        #[test]
        fn the_time_of_the_answer_is_in_its_second(date in 0_u64..1 << 33, here in 0_u64..1 << 43) {
            let skew = Skew::of(at(date * 1000), at(here));
            let there = skew.unix_ns(at(here)) / 1_000_000;
            prop_assert!((date * 1000..=date * 1000 + 1000).contains(&there));
        }
    }
}
