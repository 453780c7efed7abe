//! The macro [`sentences!`]: what an enum says to people.

/// Implements [`Display`](std::fmt::Display) for enums that have one text for each variant. A text
/// is a format string, which may name the fields of its variant and constants, or a format string
/// with arguments in parentheses.
///
/// ```text
/// sentences! {
///     Trouble {
///         Closed => "the peer closed the connection",
///         System(kind) => "the connection failed: {kind}",
///         Late { waited } => ("nothing came within {} s", waited.as_secs()),
///     }
/// }
/// ```
macro_rules! sentences {
    ($($(#[$doc:meta])* $Type:ident {
        $($Variant:ident $(($($tuple:tt)*))? $({$($named:tt)*})? => $text:tt,)+
    })+) => {
        $(
            $(#[$doc])*
            impl std::fmt::Display for $Type {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    match self {
                        $(Self::$Variant $(($($tuple)*))? $({$($named)*})? => {
                            $crate::sentences::sentences!(@write f, $text)
                        })+
                    }
                }
            }
        )+
    };
    (@write $f:ident, ($($text:tt)+)) => { write!($f, $($text)+) };
    (@write $f:ident, $text:literal) => { write!($f, $text) };
}

pub(crate) use sentences;
