//! Numbers and names inside a property's text: one form each, no allocation to write them.

use onceflow_types::{Error, Result};
use std::borrow::Cow;

/// Appends a number in decimal.
pub(crate) fn push_decimal(to: &mut Vec<u8>, number: u64) {
    let mut digits = [b'0'; 20];
    let mut rest = number;
    let mut len = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        len += 1;
        if rest == 0 {
            break;
        }
    }
    to.extend_from_slice(digits.get(20 - len..).unwrap_or_default());
}

/// Reads a decimal number without sign and leading zeros.
pub(crate) fn decimal(text: &[u8]) -> Result<u64> {
    let canonical = matches!(text, [b'0'] | [b'1'..=b'9', ..]) && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| canonical);
    text.and_then(|text| text.parse().ok()).ok_or_else(|| Error::corrupt("not a decimal number"))
}

/// Appends bytes as lower-case hexadecimal digits, two each.
pub(crate) fn push_hex(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend(bytes.iter().flat_map(|byte| [hex_digit(byte >> 4, b'a'), hex_digit(byte & 0xf, b'a')]));
}

/// Reads a lower-case hexadecimal number of exactly `digits` digits.
pub(crate) fn hex(text: &[u8], digits: usize) -> Result<u128> {
    let canonical = text.len() == digits && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(text).ok().filter(|_| canonical);
    let number = text.and_then(|text| u128::from_str_radix(text, 16).ok());
    number.ok_or_else(|| Error::corrupt("not a hexadecimal number"))
}

const fn hex_digit(value: u8, ten: u8) -> u8 {
    if value < 10 { b'0' + value } else { ten + value - 10 }
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Appends any text: letters, digits, `_`, `-`, `.` as they are, every other byte as `%` and two upper-case digits.
pub(crate) fn push_escaped(to: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        if is_plain(byte) {
            to.push(byte);
        } else {
            to.extend([b'%', hex_digit(byte >> 4, b'A'), hex_digit(byte & 0xf, b'A')]);
        }
    }
}

/// Reads what [`push_escaped`] wrote, in its only form.
pub(crate) fn unescaped(text: &[u8]) -> Result<Cow<'_, str>> {
    if text.iter().all(|byte| is_plain(*byte)) {
        return std::str::from_utf8(text).map(Cow::Borrowed).map_err(|e| Error::corrupt("not text").with_source(e));
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        plain.push(if *byte == b'%' { escape(rest.next(), rest.next())? } else { *byte });
    }
    let plain = String::from_utf8(plain).map_err(|e| Error::corrupt("escaped text is not utf-8").with_source(e))?;
    let mut again = Vec::with_capacity(text.len());
    push_escaped(&mut again, &plain);
    if again == text { Ok(Cow::Owned(plain)) } else { Err(Error::corrupt("escaped text is not in its only form")) }
}

fn escape(high: Option<&u8>, low: Option<&u8>) -> Result<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let value = digit(high).zip(digit(low)).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
    value.ok_or_else(|| Error::corrupt("escape without two digits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_survive(number: u64, wide: u128) {
            let mut text = vec![];
            push_decimal(&mut text, number);
            prop_assert_eq!(std::str::from_utf8(&text).unwrap(), number.to_string());
            prop_assert_eq!(decimal(&text).unwrap(), number);
            text.clear();
            push_hex(&mut text, &wide.to_be_bytes());
            prop_assert_eq!(std::str::from_utf8(&text).unwrap(), format!("{wide:032x}"));
            prop_assert_eq!(hex(&text, 32).unwrap(), wide);
        }

        #[test]
        fn any_text_survives_without_separators(text in any::<String>()) {
            let mut escaped = vec![];
            push_escaped(&mut escaped, &text);
            prop_assert!(escaped.iter().all(|byte| is_plain(*byte) || *byte == b'%'));
            prop_assert_eq!(unescaped(&escaped).unwrap(), text);
        }

        #[test]
        fn what_is_read_has_one_form(text in "[%0-9A-Fa-f]{0,9}") {
            if let Ok(plain) = unescaped(text.as_bytes()) {
                let mut again = vec![];
                push_escaped(&mut again, &plain);
                prop_assert_eq!(again, text.as_bytes());
            }
        }
    }

    #[test]
    fn other_forms_of_a_number_are_refused() {
        for text in ["", "+1", "01", "-1", "1 ", "18446744073709551616"] {
            assert!(decimal(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(hex(b"0A", 2).is_err());
        assert!(hex(b"a", 2).is_err());
    }
}
