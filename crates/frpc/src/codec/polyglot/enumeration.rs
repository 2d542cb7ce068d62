/// An enum whose values cross the wire as their position in the declaration, whatever their numbers.
///
/// A peer may send positions that no value has here, and keep numbers that no value has. They stand for each other, each
/// for one other: a position for the same number; or, if a value has that number, for the position of that value taken
/// as a number, and so on. The tables hold every result that is not the same number again, so that the
/// steps between take no time.
pub trait Enumeration {
    /// The numbers in the order of declaration, aliases included.
    const NUMBERS: &'static [i32];

    /// Numbers and their positions, numbers ascending: each declared number with its first position, and each number
    /// below the count of values that is not declared with the position beyond them that stands for it. No number is
    /// there for which an alias leaves no position. Empty if each number is its position.
    const POSITIONS: &'static [(i32, u32)] = &[];

    /// Positions beyond those of the values, ascending, that stand for another number than themselves.
    const UNKNOWN: &'static [(u32, i32)] = &[];
}

/// The position that stands for a number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// The first position of a value.
    Known(u32),
    /// A position that no value has, and whether a reader can tell the number from it.
    Unknown(u32, bool),
}

/// Returns the number that stands for a position which no value has. It is never that of a value.
pub(super) fn number_of_unknown<E: Enumeration>(position: u32) -> i32 {
    const { assert_tables_fit::<E>() };
    match E::UNKNOWN.binary_search_by_key(&position, |&(position, _)| position) {
        Ok(index) => E::UNKNOWN[index].1,
        Err(_) => position.cast_signed(),
    }
}

/// Returns the position that stands for a number.
#[inline]
pub(super) fn position_of<E: Enumeration>(number: i32) -> Position {
    const { assert_tables_fit::<E>() };
    let itself = number.cast_unsigned();
    let is_below_count = (itself as usize) < E::NUMBERS.len();
    if E::POSITIONS.is_empty() {
        return if is_below_count { Position::Known(itself) } else { Position::Unknown(itself, true) };
    }
    match E::POSITIONS.binary_search_by_key(&number, |&(number, _)| number) {
        Ok(index) => match E::POSITIONS[index].1 {
            position if (position as usize) < E::NUMBERS.len() => Position::Known(position),
            position => Position::Unknown(position, true),
        },
        Err(_) if is_below_count => Position::Unknown(u32::MAX - itself, false), // No way back through an alias.
        Err(_) => Position::Unknown(itself, true),
    }
}

/// Stops compiling an enum without tables that needs them.
const fn assert_tables_fit<E: Enumeration>() {
    let mut position = 0;
    while E::POSITIONS.is_empty() && position < E::NUMBERS.len() {
        assert!(
            E::NUMBERS[position] as usize == position,
            "an enum with other numbers than positions needs its tables"
        );
        position += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Sparse {}

    impl Enumeration for Sparse {
        const NUMBERS: &'static [i32] = &[0, 100, 10, -1, i32::MAX];
        const POSITIONS: &'static [(i32, u32)] = &[
            (-1, 3),
            (0, 0),
            (1, 100),
            (2, 10),
            (3, u32::MAX),
            (4, i32::MAX.cast_unsigned()),
            (10, 2),
            (100, 1),
            (i32::MAX, 4),
        ];
        const UNKNOWN: &'static [(u32, i32)] = &[(10, 2), (100, 1), (i32::MAX.cast_unsigned(), 4), (u32::MAX, 3)];
    }

    enum Gap {}

    impl Enumeration for Gap {
        const NUMBERS: &'static [i32] = &[0, 1, 2, 4, 5, 6];
        const POSITIONS: &'static [(i32, u32)] = &[(0, 0), (1, 1), (2, 2), (3, 6), (4, 3), (5, 4), (6, 5)];
        const UNKNOWN: &'static [(u32, i32)] = &[(6, 3)];
    }

    enum Aliased {}

    impl Enumeration for Aliased {
        const NUMBERS: &'static [i32] = &[0, 5, 5, 2];
        const POSITIONS: &'static [(i32, u32)] = &[(0, 0), (1, 5), (2, 3), (5, 1)];
        const UNKNOWN: &'static [(u32, i32)] = &[(5, 1)];
    }

    enum Dense {}

    impl Enumeration for Dense {
        const NUMBERS: &'static [i32] = &[0, 1, 2, 3];
    }

    macro_rules! for_each_enum {
        ($check:ident) => {
            $check::<Sparse>();
            $check::<Gap>();
            $check::<Aliased>();
            $check::<Dense>();
        };
    }

    #[test]
    fn the_tables_say_what_following_the_chain_says() {
        fn check<E: Enumeration>() {
            for number in (-9..200).chain([i32::MIN, i32::MAX - 1, i32::MAX]) {
                assert_eq!(
                    position_of::<E>(number),
                    slow::position_of(E::NUMBERS, number),
                    "{number} in {:?}",
                    E::NUMBERS
                );
            }
            for position in beyond_all() {
                assert_eq!(
                    number_of_unknown::<E>(position),
                    slow::number_of_unknown(E::NUMBERS, position),
                    "{position} in {:?}",
                    E::NUMBERS
                );
            }
        }
        for_each_enum!(check);
    }

    #[test]
    fn positions_without_a_value_keep_themselves() {
        fn check<E: Enumeration>() {
            for position in beyond_all() {
                let number = number_of_unknown::<E>(position);
                assert!(!E::NUMBERS.contains(&number), "{position} in {:?}", E::NUMBERS);
                assert_eq!(position_of::<E>(number), Position::Unknown(position, true), "{:?}", E::NUMBERS);
            }
        }
        for_each_enum!(check);
    }

    #[test]
    fn only_numbers_behind_an_alias_cannot_be_told() {
        assert_eq!(position_of::<Aliased>(3), Position::Unknown(u32::MAX - 3, false), "3 has number 2, and 2 an alias");
        assert_eq!(position_of::<Aliased>(1), Position::Unknown(5, true));
        assert_eq!(position_of::<Aliased>(5), Position::Known(1), "the first of the two");
    }

    /// Positions that none of the enums has.
    fn beyond_all() -> impl Iterator<Item = u32> {
        (6..200).chain([i32::MAX.cast_unsigned(), 1 << 31, u32::MAX - 1, u32::MAX])
    }

    /// The definition, step by step.
    mod slow {
        use super::Position;

        pub(super) fn number_of_unknown(numbers: &[i32], position: u32) -> i32 {
            let mut number = position.cast_signed();
            while let Some(taken_by) = first_with(numbers, number) {
                number = taken_by.cast_signed();
            }
            number
        }

        pub(super) fn position_of(numbers: &[i32], number: i32) -> Position {
            if let Some(position) = first_with(numbers, number) {
                return Position::Known(position);
            }
            let mut position = number.cast_unsigned();
            while let Some(&declared) = numbers.get(position as usize) {
                if first_with(numbers, declared) != Some(position) {
                    return Position::Unknown(u32::MAX - number.cast_unsigned(), false);
                }
                position = declared.cast_unsigned();
            }
            Position::Unknown(position, true)
        }

        fn first_with(numbers: &[i32], number: i32) -> Option<u32> {
            (0..).zip(numbers).find(|&(_, &declared)| declared == number).map(|(position, _)| position)
        }
    }
}
