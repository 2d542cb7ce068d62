/// An enum encoded by the position of its values in the declaration, regardless of their numbers.
///
/// Peers may send positions unknown here, and messages may hold undeclared numbers. These form pairs. A position
/// normally stands for the same number. If that number is declared, the position of its value is taken as the next
/// candidate number, and so on until a candidate is undeclared. The tables contain every result that differs from the
/// input, so no lookup repeats these steps.
pub trait Enumeration {
    /// The numbers in the order of declaration, including aliases.
    const NUMBERS: &'static [i32];

    /// Numbers and their positions, in ascending order of numbers: each declared number with its first position, and
    /// each undeclared number below the count of values with its position beyond the declared ones. A number is missing
    /// if an alias leaves no position for it. Empty if every number equals its position.
    const POSITIONS: &'static [(i32, u32)] = &[];

    /// Positions beyond the declared ones that stand for a different number, in ascending order.
    const UNKNOWN: &'static [(u32, i32)] = &[];
}

/// The position encoding a number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EncodedPosition {
    /// The first position of a declared value.
    Known(u32),
    /// An undeclared position, and whether a reader can recover the number from it.
    Unknown(u32, bool),
}

/// The tables of an [`Enumeration`] as values, for programs that load enums at run time.
#[derive(Clone, Copy, Debug)]
pub struct Positions<'a> {
    numbers: &'a [i32],
    positions: &'a [(i32, u32)],
    unknown: &'a [(u32, i32)],
}

impl<'a> Positions<'a> {
    /// Creates the tables; see [`Enumeration`] for their contents.
    ///
    /// # Panics
    ///
    /// Panics if `positions` is empty and the numbers differ from their positions.
    pub const fn new(numbers: &'a [i32], positions: &'a [(i32, u32)], unknown: &'a [(u32, i32)]) -> Self {
        let mut position = 0;
        while positions.is_empty() && position < numbers.len() {
            assert!(
                numbers[position] as usize == position,
                "an enum with other numbers than positions needs its tables"
            );
            position += 1;
        }
        Self { numbers, positions, unknown }
    }

    /// Returns the tables of a type. Evaluated in a constant, so an enum with missing tables does not compile.
    pub(super) const fn of<E: Enumeration>() -> Positions<'static> {
        Positions::new(E::NUMBERS, E::POSITIONS, E::UNKNOWN)
    }

    /// Returns the number at a declared position.
    #[inline(always)] // Specializes the code for each enum with constant tables.
    pub(super) fn number_at(self, position: u32) -> Option<i32> {
        self.numbers.get(position as usize).copied()
    }

    /// Returns the number for an undeclared position. It is never a declared number.
    pub(super) fn number_of_unknown(self, position: u32) -> i32 {
        match self.unknown.binary_search_by_key(&position, |&(position, _)| position) {
            Ok(index) => self.unknown[index].1,
            Err(_) => position.cast_signed(),
        }
    }

    /// Returns the position encoding a number.
    #[inline(always)] // As above.
    pub(super) fn position_of(self, number: i32) -> EncodedPosition {
        let itself = number.cast_unsigned();
        let is_below_count = (itself as usize) < self.numbers.len();
        if self.positions.is_empty() {
            return if is_below_count {
                EncodedPosition::Known(itself)
            } else {
                EncodedPosition::Unknown(itself, true)
            };
        }
        match self.positions.binary_search_by_key(&number, |&(number, _)| number) {
            Ok(index) => match self.positions[index].1 {
                position if (position as usize) < self.numbers.len() => EncodedPosition::Known(position),
                position => EncodedPosition::Unknown(position, true),
            },
            Err(_) if is_below_count => EncodedPosition::Unknown(u32::MAX - itself, false), // Lost through an alias.
            Err(_) => EncodedPosition::Unknown(itself, true),
        }
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
    fn tables_match_following_the_chain() {
        fn check<E: Enumeration>() {
            for number in (-9..200).chain([i32::MIN, i32::MAX - 1, i32::MAX]) {
                assert_eq!(
                    Positions::of::<E>().position_of(number),
                    slow::position_of(E::NUMBERS, number),
                    "{number} in {:?}",
                    E::NUMBERS
                );
            }
            for position in beyond_all() {
                assert_eq!(
                    Positions::of::<E>().number_of_unknown(position),
                    slow::number_of_unknown(E::NUMBERS, position),
                    "{position} in {:?}",
                    E::NUMBERS
                );
            }
        }
        for_each_enum!(check);
    }

    #[test]
    fn unknown_positions_round_trip() {
        fn check<E: Enumeration>() {
            for position in beyond_all() {
                let number = Positions::of::<E>().number_of_unknown(position);
                assert!(!E::NUMBERS.contains(&number), "{position} in {:?}", E::NUMBERS);
                assert_eq!(
                    Positions::of::<E>().position_of(number),
                    EncodedPosition::Unknown(position, true),
                    "{:?}",
                    E::NUMBERS
                );
            }
        }
        for_each_enum!(check);
    }

    #[test]
    fn only_numbers_hidden_by_an_alias_are_ambiguous() {
        let aliased = Positions::of::<Aliased>();
        assert_eq!(
            aliased.position_of(3),
            EncodedPosition::Unknown(u32::MAX - 3, false),
            "3 has number 2, and 2 an alias"
        );
        assert_eq!(aliased.position_of(1), EncodedPosition::Unknown(5, true));
        assert_eq!(aliased.position_of(5), EncodedPosition::Known(1), "the first of the two");
    }

    /// Positions not declared by any of the enums.
    fn beyond_all() -> impl Iterator<Item = u32> {
        (6..200).chain([i32::MAX.cast_unsigned(), 1 << 31, u32::MAX - 1, u32::MAX])
    }

    /// The definition, computed step by step.
    mod slow {
        use super::EncodedPosition;

        pub(super) fn number_of_unknown(numbers: &[i32], position: u32) -> i32 {
            let mut number = position.cast_signed();
            while let Some(taken_by) = first_with(numbers, number) {
                number = taken_by.cast_signed();
            }
            number
        }

        pub(super) fn position_of(numbers: &[i32], number: i32) -> EncodedPosition {
            if let Some(position) = first_with(numbers, number) {
                return EncodedPosition::Known(position);
            }
            let mut position = number.cast_unsigned();
            while let Some(&declared) = numbers.get(position as usize) {
                if first_with(numbers, declared) != Some(position) {
                    return EncodedPosition::Unknown(u32::MAX - number.cast_unsigned(), false);
                }
                position = declared.cast_unsigned();
            }
            EncodedPosition::Unknown(position, true)
        }

        fn first_with(numbers: &[i32], number: i32) -> Option<u32> {
            (0..).zip(numbers).find(|&(_, &declared)| declared == number).map(|(position, _)| position)
        }
    }
}
