//! Labels of metrics: closed sets of values.

/// A metric's label: a closed set of values, all of which are exported from the start.
pub trait Label: Copy + 'static {
    /// All values, in the order of [`Label::index`].
    const ALL: &'static [Self];
    /// The value as the metric shows it.
    fn label(self) -> &'static str;
    /// The position of the value in [`Label::ALL`].
    fn index(self) -> usize;
}

/// Declares a label and its values, one line each.
#[macro_export]
macro_rules! labels {
    ($(#[$attribute:meta])* $visibility:vis $name:ident { $($(#[$of_value:meta])* $value:ident = $label:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $name { $($(#[$of_value])* $value,)* }

        impl $crate::Label for $name {
            const ALL: &'static [Self] = &[$(Self::$value,)*];
            fn label(self) -> &'static str {
                match self { $(Self::$value => $label,)* }
            }
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
