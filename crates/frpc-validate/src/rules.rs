//! The rules of all methods, read from descriptors.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use bytes::Bytes;
use frpc::{
    Method,
    codec::{DecodeError, DecodeErrorKind, DecodedContent, Format, MemoryBudget},
    prost::Message as _,
    prost_types::FileDescriptorSet,
};
use frpc_dynamic::{EncodedFiles, SchemaLayouts, SchemaOptions, check_memory, decode_descriptors};
use prost_protovalidate::{
    Error, ValidationOption, Validator, ValidatorOption, Violation, normalize_edition_descriptor_set,
};
use prost_protovalidate_types::MessageRules;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, ExtensionDescriptor, Kind, MessageDescriptor};

/// The rules of the messages of all methods.
pub(crate) struct MethodRules {
    validator: Validator,
    layouts: SchemaLayouts,
    /// The messages of methods, by the full name of the service and the name of the method.
    services: HashMap<String, HashMap<String, MethodMessages>>,
    texts: RuleTexts,
}

/// The messages of a method. `None` stands for a message without rules.
struct MethodMessages {
    request: Option<MessageDescriptor>,
    response: Option<MessageDescriptor>,
}

/// The messages of a call to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageRole {
    Request,
    Response,
}

/// The reason why a message was not accepted.
pub(crate) enum CheckFailure {
    Violations(Vec<Violation>),
    /// The message does not match its descriptor.
    Malformed(String),
    /// The message would take more memory than its budget.
    TooLarge(String),
    /// A rule failed while it was evaluated.
    BrokenRule(String),
}

/// The reason why rules cannot be used: malformed descriptors, or a rule that does not compile.
#[derive(Debug)]
pub struct RulesError(String);

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RulesError {}

impl MethodRules {
    pub(crate) fn read<'a>(sets: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, RulesError> {
        let malformed = |error: &dyn fmt::Display| RulesError(format!("the descriptors are malformed: {error}"));
        let (mut files, mut encoded) = (FileDescriptorSet::default(), EncodedFiles::default());
        let mut known = HashSet::new();
        for set in sets {
            let decoded = decode_descriptors(set).map_err(|error| malformed(&error))?;
            let raw = EncodedFiles::decode(set).map_err(|error| malformed(&error))?;
            // Rules are extensions of options, and a decoded file lacks them.
            let fresh = decoded.file.into_iter().zip(raw.file).filter(|(file, _)| known.insert(file.name().to_owned()));
            let (decoded, raw): (Vec<_>, Vec<_>) = fresh.unzip();
            files.file.extend(decoded);
            encoded.file.extend(raw);
        }
        // prost-reflect knows no editions, and panics for an error in a set after the first one.
        let encoded = normalize_edition_descriptor_set(&encoded.encode_to_vec());
        let pool = DescriptorPool::decode(&encoded[..]).map_err(|error| malformed(&error))?;
        let layouts = SchemaLayouts::read(&files, &SchemaOptions::default()).map_err(|error| malformed(&error))?;
        let validator = Validator::with_options(&[ValidatorOption::AdditionalDescriptorSetBytes(encoded)]);
        let marks = RuleMarks::of(&pool);
        let (mut checked, mut texts) = (HashSet::new(), RuleTexts::default());
        let mut services: HashMap<_, HashMap<_, _>> = HashMap::new();
        for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
            let mut with_rules = |message: MessageDescriptor| {
                let messages = marks.reachable(&message);
                let has_rules = messages.iter().any(|message| marks.has_rules(message));
                for message in messages.iter().filter(|message| checked.insert(message.full_name().to_owned())) {
                    compile(&validator, message)?;
                    texts.add(&marks.of_message(message));
                }
                Ok(has_rules.then_some(message))
            };
            let messages =
                MethodMessages { request: with_rules(method.input())?, response: with_rules(method.output())? };
            let service = method.parent_service().full_name().to_owned();
            services.entry(service).or_default().insert(method.name().to_owned(), messages);
        }
        Ok(Self { validator, layouts, services, texts })
    }

    /// Returns the message to check, or `None` if the method is unknown or the message has no rules.
    pub(crate) fn message(&self, method: &Method, role: MessageRole) -> Option<&MessageDescriptor> {
        let messages = self.services.get(method.service)?.get(method.name)?;
        match role {
            MessageRole::Request => messages.request.as_ref(),
            MessageRole::Response => messages.response.as_ref(),
        }
    }

    /// Checks an encoded message.
    pub(crate) fn check(
        &self,
        message: &MessageDescriptor,
        format: Format,
        content: &Bytes,
        budget: MemoryBudget,
    ) -> Result<(), CheckFailure> {
        // The rules see a copy.
        let budget = MemoryBudget::new(budget.for_len(content.len()) / 2);
        let over_budget = |error: &DecodeError| match error.kind() {
            DecodeErrorKind::OverBudget { .. } | DecodeErrorKind::TooMuchMemory { .. } => {
                CheckFailure::TooLarge(error.to_string())
            }
            _ => CheckFailure::Malformed(error.to_string()),
        };
        check_memory(message, format, content, budget).map_err(|error| over_budget(&error))?;
        let decoded = match format {
            Format::Polyglot => match self.layouts.decode(message, content, budget) {
                Ok(DecodedContent::Message(message)) => message,
                Ok(DecodedContent::Error(_)) => return Ok(()),
                Err(error) => return Err(over_budget(&error)),
            },
            Format::Proto => DynamicMessage::decode(message.clone(), content.clone())
                .map_err(|error| CheckFailure::Malformed(error.to_string()))?,
            // The formats of frpc are these three.
            _ => {
                let mut input = serde_json::Deserializer::from_slice(content);
                let options = DeserializeOptions::new().deny_unknown_fields(false);
                DynamicMessage::deserialize_with_options(message.clone(), &mut input, &options)
                    .map_err(|error| CheckFailure::Malformed(error.to_string()))?
            }
        };
        let options: &[_] = if content.len() > ALL_VIOLATIONS_LEN_MAX { &[ValidationOption::FailFast] } else { &[] };
        self.validator.validate_with(&decoded, options).map_err(|error| match error {
            Error::Validation(error) => CheckFailure::Violations(
                error.into_violations().into_iter().map(|one| self.texts.fill_in(one)).collect(),
            ),
            error => CheckFailure::BrokenRule(error.to_string()),
        })
    }
}

/// Compiles the rules of a message.
fn compile(validator: &Validator, message: &MessageDescriptor) -> Result<(), RulesError> {
    match validator.validate(&DynamicMessage::new(message.clone())) {
        Err(Error::Compilation(error)) => {
            Err(RulesError(format!("a rule of {} does not compile: {error}", message.full_name())))
        }
        // An empty message may violate its rules.
        _ => Ok(()),
    }
}

/// The options with rules. All are `None` if no file imports `buf/validate/validate.proto`.
struct RuleMarks([Option<ExtensionDescriptor>; 3]);

impl RuleMarks {
    fn of(pool: &DescriptorPool) -> Self {
        Self(["message", "oneof", "field"].map(|name| pool.get_extension_by_name(&format!("buf.validate.{name}"))))
    }

    /// Returns `true` if an option of the message itself contains a rule.
    fn has_rules(&self, message: &MessageDescriptor) -> bool {
        let Self([of_message, of_oneof, of_field]) = self;
        let has = |options: &DynamicMessage, mark: &Option<ExtensionDescriptor>| {
            mark.as_ref().is_some_and(|mark| options.has_extension(mark))
        };
        has(&message.options(), of_message)
            || message.oneofs().any(|oneof| has(&oneof.options(), of_oneof))
            || message.fields().any(|field| has(&field.options(), of_field))
    }

    /// Returns the rules for a message as a whole.
    fn of_message(&self, message: &MessageDescriptor) -> MessageRules {
        let rules = self.0[0].as_ref().and_then(|mark| {
            let options = message.options();
            MessageRules::decode(&options.get_extension(mark).as_message()?.encode_to_vec()[..]).ok()
        });
        rules.unwrap_or_default()
    }

    /// Returns a message and all messages that it can contain.
    fn reachable(&self, message: &MessageDescriptor) -> Vec<MessageDescriptor> {
        let mut found = vec![message.clone()];
        let mut seen = HashSet::from([message.full_name().to_owned()]);
        let mut at = 0;
        while let Some(message) = found.get(at).cloned() {
            at += 1;
            for field in message.fields() {
                if let Kind::Message(inner) = field.kind()
                    && seen.insert(inner.full_name().to_owned())
                {
                    found.push(inner);
                }
            }
        }
        found
    }
}

/// The texts of rules for whole messages, by the id of the rule. Their violations lack them. `None` if rules with the
/// same id have different texts.
#[derive(Default)]
struct RuleTexts(HashMap<String, Option<String>>);

impl RuleTexts {
    fn add(&mut self, rules: &MessageRules) {
        for rule in rules.cel.iter().filter(|rule| !rule.message().is_empty()) {
            let text = self.0.entry(rule.id().to_owned()).or_insert_with(|| rule.message.clone());
            if text.as_deref() != Some(rule.message()) {
                *text = None;
            }
        }
    }

    fn fill_in(&self, mut violation: Violation) -> Violation {
        if violation.message().is_empty()
            && let Some(Some(text)) = self.0.get(violation.rule_id())
        {
            violation.set_message(text);
        }
        violation
    }
}

/// The length of a message up to which all its violations are collected. Of longer ones, only the first is: each takes
/// far more memory than an invalid item of a list.
const ALL_VIOLATIONS_LEN_MAX: usize = 16 << 10;
