use std::fmt::{self, Display, Formatter};

/// The median and the extremes of a metric over all rounds.
pub(crate) struct Spread {
    sorted: Vec<f64>,
}

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<_> = values.collect();
        sorted.sort_by(f64::total_cmp);
        Self { sorted }
    }

    pub(crate) fn times(mut self, factor: f64) -> Self {
        self.sorted.iter_mut().for_each(|value| *value *= factor);
        self
    }

    /// Returns the median, or `None` without measurements.
    pub(crate) fn median(&self) -> Option<f64> {
        let len = self.sorted.len();
        Some((self.sorted.get(len.checked_sub(1)? / 2)? + self.sorted.get(len / 2)?) / 2.0)
    }
}

impl Display for Spread {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let precision = f.precision().unwrap_or(1);
        let Some(median) = self.median() else { return f.write_str("–") };
        write!(f, "{median:.precision$}")?;
        match self.sorted[..] {
            [least, .., most] => write!(f, " ({least:.precision$}–{most:.precision$})"),
            _ => Ok(()),
        }
    }
}
