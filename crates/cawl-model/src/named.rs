//! Enums whose variants have names for people.

/// An enum with the name of each variant; several have the same few traits, others are derived beside them.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All of them, in the order of reports.
            pub const ALL: [$name; [$($text,)*].len()] = [$($name::$variant,)*];

            /// Its name, as people read and write it.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}
pub use named;
