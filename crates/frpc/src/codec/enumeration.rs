/// An enum whose values cross the wire as their position in the declaration, whatever their numbers.
pub trait Enumeration {
    /// The numbers in the order of declaration, aliases included.
    const NUMBERS: &'static [i32];
}

/// The number that stands for a position which no value has: the same; or, if a value has that number, the position of
/// that value, and so on. Each such position gets a number of its own, and never that of a value.
pub(super) fn number_of_unknown(numbers: &[i32], position: u32) -> i32 {
    let mut number = position.cast_signed();
    while let Some(taken_by) = position_of(numbers, number) {
        number = taken_by.cast_signed();
    }
    number
}

/// The position that stands for a number which no value has, and whether a reader can tell the number from it.
pub(super) fn position_of_unknown(numbers: &[i32], number: i32) -> (u32, bool) {
    let mut position = number.cast_unsigned();
    while let Some(&declared) = numbers.get(position as usize) {
        if position_of(numbers, declared) != Some(position) {
            return (u32::MAX - number.cast_unsigned(), false); // No way back through an alias.
        }
        position = declared.cast_unsigned();
    }
    (position, true)
}

/// The position of the first value with this number.
pub(super) fn position_of(numbers: &[i32], number: i32) -> Option<u32> {
    let position = numbers.iter().position(|&declared| declared == number)?;
    Some(u32::try_from(position).expect("no enum has so many values"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPARSE: &[i32] = &[0, 100, 10, -1, i32::MAX];
    const GAP: &[i32] = &[0, 1, 2, 4, 5, 6];
    const ALIASED: &[i32] = &[0, 5, 5, 2];

    #[test]
    fn positions_without_a_value_keep_themselves() {
        for numbers in [SPARSE, GAP, ALIASED] {
            for position in (6..200).chain([i32::MAX.cast_unsigned(), 1 << 31, u32::MAX - 1, u32::MAX]) {
                let number = number_of_unknown(numbers, position);
                assert!(!numbers.contains(&number), "{position} in {numbers:?}");
                assert_eq!(position_of_unknown(numbers, number), (position, true), "{numbers:?}");
            }
        }
    }

    #[test]
    fn numbers_without_a_value_are_never_taken_for_one() {
        for numbers in [SPARSE, GAP, ALIASED] {
            for number in (-9..200).chain([i32::MIN, i32::MAX]).filter(|number| !numbers.contains(number)) {
                let (position, is_telling) = position_of_unknown(numbers, number);
                assert!(position as usize >= numbers.len(), "{number} in {numbers:?}");
                assert_eq!(is_telling, number_of_unknown(numbers, position) == number, "{number} in {numbers:?}");
            }
        }
    }

    #[test]
    fn only_numbers_behind_an_alias_cannot_be_told() {
        assert!(position_of_unknown(SPARSE, 1).1 && position_of_unknown(GAP, 3).1 && position_of_unknown(ALIASED, 1).1);
        assert!(!position_of_unknown(ALIASED, 3).1, "position 3 has number 2, and position 2 an alias");
    }
}
