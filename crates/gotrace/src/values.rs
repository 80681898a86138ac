//! Values of a hit: slots, indexed by a program's own type.

#[cfg(test)]
mod tests;

use std::{fmt, marker::PhantomData, sync::Arc};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, Error as _, MapAccess, Visitor},
    ser::SerializeMap as _,
};
use smallvec::SmallVec;

use crate::decode::lists::{Entries, Top};

/// Kind of a value. It determines how the read memory is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An address or a count.
    Number,
    /// A number that may be negative.
    Signed,
    /// Whether the lowest byte of a word is not zero.
    Flag,
    /// A `time.Time` by its first word, as nanoseconds since the Unix epoch. `None` if it does not come from the clock.
    Time,
    /// A string, or bytes as if they were one: `\u{fffd}` stands for those that are none. A truncated one ends in `…`.
    Text,
    /// A long string, the only value at its site.
    LongText,
    /// The elements of a list of strings, as far as they are read.
    Texts,
    /// A name, found by address in the program's [names](crate::plan::Plan::names).
    Name,
    /// The elements of a slice with the highest keys.
    Top,
    /// The values of a map.
    Entries,
}

/// A program's values: a closed enum, whose serialized names are the keys of recordings.
pub trait Value:
    Copy + Eq + Ord + fmt::Debug + Serialize + for<'de> Deserialize<'de> + Send + Sync + 'static
{
    /// The value's kind.
    fn kind(self) -> Kind;
}

/// Content of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is a `Kind` and documented there")]
pub enum Datum {
    /// [`Kind::Number`], [`Kind::Signed`] by its bits, and [`Kind::Time`].
    Number(u64),
    Flag(bool),
    Text(String),
    Texts(Vec<Option<String>>),
    Name(Arc<str>),
    Top(Box<Top>),
    Entries(Box<Entries>),
}

/// Slots that take no allocation: most hits have no more.
const FEW: usize = 3;

/// The values of one hit. A value that was not read, or was not readable at that moment, has no slot.
#[derive(Clone, Debug)]
pub struct Values<V>(SmallVec<[(V, Datum); FEW]>);

/// Compares slots in any order.
impl<V: Value> PartialEq for Values<V> {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().all(|(value, datum)| other.get(*value) == Some(datum))
    }
}

impl<V: Value> Eq for Values<V> {}

impl<V> Default for Values<V> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<V: Value> Values<V> {
    /// Reserves room for this many more slots.
    pub fn reserve(&mut self, slots: usize) {
        self.0.reserve_exact(slots);
    }

    fn get(&self, value: V) -> Option<&Datum> {
        self.0.iter().find(|(own, _)| *own == value).map(|(_, datum)| datum)
    }

    /// Fills a slot, or empties it with `None`.
    pub fn set(&mut self, value: V, datum: impl IntoDatum) {
        let place = self.0.iter().position(|(own, _)| *own == value);
        match (datum.into_datum(), place) {
            (Some(datum), Some(place)) => self.0[place].1 = datum,
            (Some(datum), None) => self.0.push((value, datum)),
            (None, Some(place)) => drop(self.0.swap_remove(place)),
            (None, None) => {}
        }
    }

    /// Builder form of [`Values::set`].
    #[must_use]
    pub fn with(mut self, value: V, datum: impl IntoDatum) -> Self {
        self.set(value, datum);
        self
    }

    /// Empties a slot and returns its content.
    pub fn take(&mut self, value: V) -> Option<Datum> {
        let place = self.0.iter().position(|(own, _)| *own == value)?;
        Some(self.0.swap_remove(place).1)
    }

    /// The filled slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (V, &mut Datum)> {
        self.0.iter_mut().map(|(value, datum)| (*value, datum))
    }

    /// A [`Kind::Number`] or [`Kind::Time`].
    #[must_use]
    pub fn number(&self, value: V) -> Option<u64> {
        if let Datum::Number(number) = self.get(value)? { Some(*number) } else { None }
    }

    /// A [`Kind::Signed`].
    #[must_use]
    pub fn signed(&self, value: V) -> Option<i64> {
        self.number(value).map(u64::cast_signed)
    }

    /// A [`Kind::Flag`].
    #[must_use]
    pub fn flag(&self, value: V) -> Option<bool> {
        if let Datum::Flag(flag) = self.get(value)? { Some(*flag) } else { None }
    }

    /// A [`Kind::Text`].
    #[must_use]
    pub fn text(&self, value: V) -> Option<&str> {
        if let Datum::Text(text) = self.get(value)? { Some(text) } else { None }
    }

    /// Takes a [`Kind::Text`] out of its slot.
    pub fn take_text(&mut self, value: V) -> Option<String> {
        if let Datum::Text(text) = self.take(value)? { Some(text) } else { None }
    }

    /// Takes a [`Kind::Texts`] out of its slot; empty if the slot is.
    pub fn take_texts(&mut self, value: V) -> Vec<Option<String>> {
        if let Some(Datum::Texts(texts)) = self.take(value) { texts } else { Vec::new() }
    }

    /// Takes a [`Kind::Name`] out of its slot.
    pub fn take_name(&mut self, value: V) -> Option<Arc<str>> {
        if let Datum::Name(name) = self.take(value)? { Some(name) } else { None }
    }

    /// Takes a [`Kind::Top`] out of its slot.
    pub fn take_top(&mut self, value: V) -> Option<Box<Top>> {
        if let Datum::Top(top) = self.take(value)? { Some(top) } else { None }
    }

    /// Takes [`Kind::Entries`] out of their slot.
    pub fn take_entries(&mut self, value: V) -> Option<Box<Entries>> {
        if let Datum::Entries(entries) = self.take(value)? { Some(entries) } else { None }
    }

    /// Fills one place of a [`Kind::Texts`].
    pub(crate) fn set_text_at(&mut self, value: V, place: usize, text: Option<String>) {
        let mut texts = self.take_texts(value);
        if texts.len() <= place {
            texts.resize(place + 1, None);
        }
        texts[place] = text;
        self.set(value, Datum::Texts(texts));
    }
}

/// Types that can fill a slot; `None` empties it.
pub trait IntoDatum {
    /// Converts to the content of a slot.
    fn into_datum(self) -> Option<Datum>;
}

macro_rules! into_datum {
    ($($from:ty: $value:ident => $datum:expr;)*) => {
        $(impl IntoDatum for $from {
            fn into_datum(self) -> Option<Datum> {
                let $value = self;
                Some($datum)
            }
        })*
    };
}

into_datum! {
    Datum: datum => datum;
    u64: number => Datum::Number(number);
    i64: number => Datum::Number(number.cast_unsigned());
    // The type of integer literals.
    i32: number => Datum::Number(i64::from(number).cast_unsigned());
    bool: flag => Datum::Flag(flag);
    String: text => Datum::Text(text);
    &str: text => Datum::Text(text.to_owned());
    Arc<str>: name => Datum::Name(name);
    Top: top => Datum::Top(Box::new(top));
    Entries: entries => Datum::Entries(Box::new(entries));
}

impl<const N: usize> IntoDatum for [Option<String>; N] {
    fn into_datum(self) -> Option<Datum> {
        // A list without any element read stays absent.
        self.iter().any(Option::is_some).then(|| Datum::Texts(self.into()))
    }
}

impl<T: IntoDatum> IntoDatum for Option<T> {
    fn into_datum(self) -> Option<Datum> {
        self.and_then(T::into_datum)
    }
}

impl<V: Value> Serialize for Values<V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (value, datum) in &self.0 {
            map.serialize_key(value)?;
            match datum {
                Datum::Number(number) if value.kind() == Kind::Signed => {
                    map.serialize_value(&number.cast_signed())?;
                }
                Datum::Number(number) => map.serialize_value(number)?,
                Datum::Flag(flag) => map.serialize_value(flag)?,
                Datum::Text(text) => map.serialize_value(text)?,
                Datum::Texts(texts) => map.serialize_value(texts)?,
                Datum::Name(name) => map.serialize_value(name)?,
                Datum::Top(top) => map.serialize_value(top)?,
                Datum::Entries(entries) => map.serialize_value(entries)?,
            }
        }
        map.end()
    }
}

impl<'de, V: Value> Deserialize<'de> for Values<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Slots<V>(PhantomData<V>);

        impl<'de, V: Value> Visitor<'de> for Slots<V> {
            type Value = Values<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("values by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Values<V>, A::Error> {
                let mut values = Values::default();
                while let Some(value) = map.next_key::<V>()? {
                    if values.get(value).is_some() {
                        return Err(A::Error::custom(format_args!("`{}` is there twice", name(value))));
                    }
                    let datum = map.next_value_seed(OfKind(value.kind()));
                    let named = |error| A::Error::custom(format_args!("`{}`: {error}", name(value)));
                    values.set(value, datum.map_err(named)?);
                }
                Ok(values)
            }
        }

        from.deserialize_map(Slots(PhantomData))
    }
}

/// Deserializes the content of a slot; null is `None`.
struct OfKind(Kind);

impl<'de> DeserializeSeed<'de> for OfKind {
    type Value = Option<Datum>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Datum>, D::Error> {
        Ok(match self.0 {
            Kind::Number | Kind::Time => Option::<u64>::deserialize(from)?.into_datum(),
            Kind::Signed => Option::<i64>::deserialize(from)?.into_datum(),
            Kind::Flag => Option::<bool>::deserialize(from)?.into_datum(),
            Kind::Text | Kind::LongText => Option::<String>::deserialize(from)?.into_datum(),
            Kind::Name => Option::<String>::deserialize(from)?.map(|name| Datum::Name(name.into())),
            Kind::Texts => Option::<Vec<Option<String>>>::deserialize(from)?.map(Datum::Texts),
            Kind::Top => Option::<Top>::deserialize(from)?.into_datum(),
            Kind::Entries => Option::<Entries>::deserialize(from)?.into_datum(),
        })
    }
}

/// Declares a program's values and their kinds.
#[macro_export]
macro_rules! values {
    (
        $(#[$attribute:meta])*
        $vis:vis enum $name:ident;
        $($(#[$of_value:meta])* $value:ident: $kind:ident,)*
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, $crate::serde::Serialize, $crate::serde::Deserialize)]
        #[serde(rename_all = "camelCase", crate = "gotrace::serde")]
        $vis enum $name { $($(#[$of_value])* $value,)* }

        impl $crate::values::Value for $name {
            fn kind(self) -> $crate::values::Kind {
                match self { $(Self::$value => $crate::values::Kind::$kind,)* }
            }
        }
    };
}

/// Serialized name of an enum variant, as in the JSON output.
pub fn name(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
