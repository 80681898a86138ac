//! What a Pod's spec asks of a scheduler's plugins: kinds of terms, never their values.

use std::ops::BitOr;

use crate::{AttributeValue, Span, attributes, kind::named};

named! {
    /// A kind of term in a Pod's spec. A plugin that evaluates it may take longer for this Pod than for others.
    #[derive(PartialOrd, Ord)]
    pub enum Term;
    /// What it is called in attributes, answers and sentences.
    fn name;

    /// `nodeSelector`.
    NodeSelector: "node selector",
    /// `affinity.nodeAffinity`, required.
    RequiredNodeAffinity: "required Node affinity",
    /// `affinity.nodeAffinity`, preferred.
    PreferredNodeAffinity: "preferred Node affinity",
    /// `affinity.podAffinity`, required.
    RequiredPodAffinity: "required Pod affinity",
    /// `affinity.podAffinity`, preferred.
    PreferredPodAffinity: "preferred Pod affinity",
    /// `affinity.podAntiAffinity`, required.
    RequiredPodAntiAffinity: "required Pod anti-affinity",
    /// `affinity.podAntiAffinity`, preferred.
    PreferredPodAntiAffinity: "preferred Pod anti-affinity",
    /// `topologySpreadConstraints` with `DoNotSchedule`.
    HardSpread: "hard spread constraints",
    /// `topologySpreadConstraints` with `ScheduleAnyway`.
    SoftSpread: "soft spread constraints",
    /// Volumes that are PersistentVolumeClaims, ephemeral ones too.
    VolumeClaims: "volume claims",
    /// Disks of which only some Pods of a Node may have the same: `awsElasticBlockStore`, `gcePersistentDisk`, `iscsi`, `rbd`.
    InlineDisks: "inline disks",
    /// `ports` of containers with a `hostPort`.
    HostPorts: "host ports",
    /// `resourceClaims`.
    ResourceClaims: "resource claims",
}

/// A set of terms: one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms(u16);

const _: () = assert!(Term::ALL.len() <= u16::BITS as usize);

impl Terms {
    /// The set of these.
    #[must_use]
    pub const fn of(terms: &[Term]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < terms.len() {
            bits |= 1 << terms[at] as u16;
            at += 1;
        }
        Self(bits)
    }

    /// Those that a root names.
    #[must_use]
    pub fn of_root(root: &Span) -> Self {
        let Some(AttributeValue::Strings(names)) = root.attribute(attributes::POD_TERMS) else {
            return Self::default();
        };
        let has = |term: &Term| names.iter().any(|name| name == term.name());
        Term::ALL.into_iter().filter(has).fold(Self::default(), |all, term| all | term.into())
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The terms, in the order of [`Term::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Term> {
        Term::ALL.into_iter().filter(move |term| self.0 & 1 << *term as u16 != 0)
    }

    /// Their names.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        self.iter().map(|term| term.name().to_owned()).collect()
    }

    /// What the root of an attempt says of them; nothing if there are none.
    #[must_use]
    pub fn attribute(self) -> Option<(&'static str, AttributeValue)> {
        (!self.is_empty()).then(|| (attributes::POD_TERMS, AttributeValue::Strings(self.names())))
    }
}

impl From<Term> for Terms {
    fn from(term: Term) -> Self {
        Self::of(&[term])
    }
}

impl BitOr for Terms {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::scheduled;

    #[test]
    fn a_root_says_the_terms_that_it_was_given_and_no_others() {
        let mut root = scheduled().spans.swap_remove(0);
        assert!(Terms::of_root(&root).is_empty() && Terms::default().attribute().is_none());
        for bits in 0..1_u16 << Term::ALL.len() {
            root.attributes.retain(|(key, _)| *key != attributes::POD_TERMS);
            root.attributes.extend(Terms(bits).attribute());
            assert_eq!(Terms::of_root(&root), Terms(bits));
        }
        let unknown = AttributeValue::Strings(vec!["host ports".to_owned(), "other".to_owned()]);
        root.attributes.retain(|(key, _)| *key != attributes::POD_TERMS);
        root.attributes.push((attributes::POD_TERMS, unknown));
        assert_eq!(Terms::of_root(&root), Term::HostPorts.into());
    }
}
