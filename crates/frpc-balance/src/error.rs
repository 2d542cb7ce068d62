use std::fmt;

/// A setting with an unusable value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSetting {
    name: &'static str,
    why: String,
}

impl InvalidSetting {
    pub(crate) fn new(name: &'static str, why: impl Into<String>) -> Self {
        Self { name, why: why.into() }
    }

    /// Returns an error with this reason unless `is_valid`.
    pub(crate) fn require(is_valid: bool, name: &'static str, why: &str) -> Result<(), Self> {
        if is_valid { Ok(()) } else { Err(Self::new(name, why)) }
    }

    /// Returns the name of the setting, such as `attempts_max`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the rule for the value, such as `must not be zero`.
    pub fn why(&self) -> &str {
        &self.why
    }
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.why)
    }
}

impl std::error::Error for InvalidSetting {}
