//! The table of constants.
//!
//! The law: **a constant is one row.** The macro `constants` makes of the rows the tables of the profile's
//! file, and what walks through them by name: changes, differences, learning, the page of constants.

use serde::{Deserialize, Serialize};

use crate::named::named;
use crate::units::{Bytes, Nanos, Rate};

named! {
    /// What a constant is a quantity of.
    Unit {
        /// Bytes per second.
        Rate = "B/s",
        /// Nanoseconds.
        Time = "ns",
        /// Bytes.
        Size = "B",
        /// A number without a unit; of a flag 0 or 1.
        Number = "1",
        /// One of several names.
        Name = "name",
    }
}

/// A constant with what is known about its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured<T> {
    /// Best estimate.
    pub value: T,
    /// 10th percentile, in the unit of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p10: Option<T>,
    /// 90th percentile, in the unit of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90: Option<T>,
    /// How many samples it rests on; 0 for a default.
    #[serde(default)]
    pub samples: u32,
}

impl<T> Measured<T> {
    /// A figure that was not measured on this machine.
    pub const fn assumed(value: T) -> Measured<T> {
        Measured { value, p10: None, p90: None, samples: 0 }
    }

    /// The constant in another unit, with its percentiles.
    pub fn map<U>(self, unit: impl Fn(T) -> U) -> Measured<U> {
        let Measured { value, p10, p90, samples } = self;
        Measured { value: unit(value), p10: p10.map(&unit), p90: p90.map(&unit), samples }
    }
}

/// What is known of every profile's constant.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name in its table of the file.
    pub name: &'static str,
    /// What it is, and what stands for it where it was not measured.
    pub about: &'static str,
    /// What the table of a calibration calls it; empty: it is not measured.
    pub label: &'static str,
    /// The kernel, the filesystem or the device sets it: it is nothing that a better device would change.
    pub setting: bool,
}

/// The value of a constant, in its unit.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number with what is known about its uncertainty; a flag is 0 or 1.
    Number(Measured<f64>),
    /// One of several names.
    Name(String),
}

/// A constant of a profile, whatever its unit.
pub trait Figure {
    /// What it is a quantity of.
    fn unit(&self) -> Unit;

    /// Its value; None where the profile does not have it.
    fn value(&self) -> Option<Value>;

    /// Gives it this value, or the nearest that it can have. A name stays.
    fn set(&mut self, to: Measured<f64>);

    /// Its value, if it is a number.
    fn number(&self) -> Option<Measured<f64>> {
        match self.value()? {
            Value::Number(number) => Some(number),
            Value::Name(_) => None,
        }
    }

    /// The file does not have it.
    fn is_absent(&self) -> bool {
        false
    }

    /// The constants of which it is a table.
    fn table(&self) -> Option<&dyn Constants> {
        None
    }

    /// The same, to be changed.
    fn table_mut(&mut self) -> Option<&mut dyn Constants> {
        None
    }
}

/// A table of constants.
pub trait Constants {
    /// Shows all of them, in the order of the file.
    fn each(&self, show: &mut dyn FnMut(Row, &dyn Figure));

    /// The one of this name: `fsync`, `network.open`.
    fn find(&mut self, name: &str) -> Option<&mut dyn Figure>;
}

/// Makes a struct whose fields are rows of the table, and its [`Constants`].
///
/// A row is a docstring, perhaps an attribute of serde, and a field. After it may come what the table of a
/// calibration calls it (`= "fresh pages"`), what stands for it where it was not measured (`, as read`, which
/// makes a method of its name), or that it is a setting (`=> setting`). Names after `retired` are those of
/// constants that older files have and no law uses.
macro_rules! constants {
    ($(#[$meta:meta])* $table:ident $(retired $($old:ident)+)? {
        $($(#[doc = $about:literal])+ $(#[serde($($serde:tt)*)])?
        $field:ident: $type:ty $(= $label:literal)? $(, as $known:ident $(($($call:tt)*))?)? $(=> $setting:ident)?;)*
    }) => {
        $(#[$meta])*
        #[derive(serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $table {
            $($(#[doc = $about])+
            #[serde(skip_serializing_if = "crate::table::Figure::is_absent", $($($serde)*)?)]
            pub $field: $type,)*
            $($(#[doc(hidden)]
            #[serde(default, skip_serializing)]
            pub $old: crate::table::Retired,)+)?
        }

        impl crate::table::Constants for $table {
            fn each(&self, show: &mut dyn FnMut(crate::table::Row, &dyn crate::table::Figure)) {
                $(show(crate::table::Row {
                    name: stringify!($field),
                    about: concat!($($about),+),
                    label: concat!($($label)?),
                    setting: !concat!($(stringify!($setting))?).is_empty(),
                }, &self.$field);)*
            }

            fn find(&mut self, name: &str) -> Option<&mut dyn crate::table::Figure> {
                let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
                let figure: &mut dyn crate::table::Figure = match first {
                    $(stringify!($field) => &mut self.$field,)*
                    _ => return None,
                };
                match rest {
                    Some(rest) => figure.table_mut()?.find(rest),
                    None => Some(figure),
                }
            }
        }

        impl $table {
            $($(
                #[doc = concat!("`", stringify!($field), "`, or what stands for it.")]
                pub fn $field(&self) -> <$type as crate::table::Optional>::Known {
                    self.$field.unwrap_or_else(|| self.$known $(($($call)*))?)
                }
            )?)*
        }
    };
}
pub(crate) use constants;

/// A constant that older files have and no law uses: whatever its value is, it is read, and not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retired;

impl<'de> Deserialize<'de> for Retired {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Retired, D::Error> {
        serde::de::IgnoredAny::deserialize(from).map(|_| Retired)
    }
}

/// A constant that a profile may lack.
pub trait Optional {
    /// What it is where the profile has it.
    type Known;
}

impl<T> Optional for Option<T> {
    type Known = T;
}

/// What is a number: its unit, and how to get it and make it.
macro_rules! figures {
    ($($type:ty, $unit:ident, $get:expr, $make:expr;)*) => {$(
        impl Figure for $type {
            fn unit(&self) -> Unit {
                Unit::$unit
            }

            fn value(&self) -> Option<Value> {
                Some(Value::Number(Measured::assumed($get(*self))))
            }

            fn set(&mut self, to: Measured<f64>) {
                *self = $make(to.value);
            }
        }

        impl Figure for Measured<$type> {
            fn unit(&self) -> Unit {
                Unit::$unit
            }

            fn value(&self) -> Option<Value> {
                Some(Value::Number(self.map($get)))
            }

            fn set(&mut self, to: Measured<f64>) {
                *self = to.map($make);
            }
        }

        optional!($type, |to: Measured<f64>| $make(to.value));
        optional!(Measured<$type>, |to: Measured<f64>| to.map($make));
    )*};
}

/// What a profile may lack: it is made of `make`, of a number.
macro_rules! optional {
    ($type:ty, $make:expr) => {
        impl Figure for Option<$type> {
            fn unit(&self) -> Unit {
                $make(Measured::assumed(1.0)).unit()
            }

            fn value(&self) -> Option<Value> {
                self.as_ref()?.value()
            }

            fn set(&mut self, to: Measured<f64>) {
                *self = Some($make(to));
            }

            fn is_absent(&self) -> bool {
                self.is_none()
            }
        }
    };
}

figures! {
    Rate, Rate, Rate::get, Rate::per_second;
    Nanos, Time, Nanos::get, Nanos::new;
    Bytes, Size, |size: Bytes| size.0 as f64, |size| Bytes(size as u64);
    f64, Number, |number| number, |number| number;
    u32, Number, f64::from, |number| number as u32;
    u64, Number, |number| number as f64, |number| number as u64;
    bool, Number, f64::from, |number| number != 0.0;
}

/// A constant that is one of several names.
macro_rules! name {
    ($type:ty) => {
        crate::table::name!($type, |this: &$type| toml::Value::try_from(this).ok(), false);
        crate::table::name!(Option<$type>, |this: &Option<$type>| toml::Value::try_from((*this)?).ok(), true);
    };
    ($type:ty, $value:expr, $optional:literal) => {
        impl crate::table::Figure for $type {
            fn unit(&self) -> crate::table::Unit {
                crate::table::Unit::Name
            }

            fn value(&self) -> Option<crate::table::Value> {
                Some(crate::table::Value::Name($value(self)?.as_str()?.to_owned()))
            }

            fn set(&mut self, _: crate::table::Measured<f64>) {}

            fn is_absent(&self) -> bool {
                $optional && self.value().is_none()
            }
        }
    };
}
pub(crate) use name;

/// A table within a table.
impl<T: Constants> Figure for T {
    fn unit(&self) -> Unit {
        Unit::Name
    }

    fn value(&self) -> Option<Value> {
        None
    }

    fn set(&mut self, _: Measured<f64>) {}

    fn table(&self) -> Option<&dyn Constants> {
        Some(self)
    }

    fn table_mut(&mut self) -> Option<&mut dyn Constants> {
        Some(self)
    }
}

/// A table that a profile may lack.
impl<T: Constants> Figure for Option<T> {
    fn unit(&self) -> Unit {
        Unit::Name
    }

    fn value(&self) -> Option<Value> {
        None
    }

    fn set(&mut self, _: Measured<f64>) {}

    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn table(&self) -> Option<&dyn Constants> {
        self.as_ref().map(|table| table as &dyn Constants)
    }

    fn table_mut(&mut self) -> Option<&mut dyn Constants> {
        self.as_mut().map(|table| table as &mut dyn Constants)
    }
}
