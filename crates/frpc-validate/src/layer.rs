use std::{fmt, sync::Arc};

use bytes::Bytes;
use frpc::{
    Answer, Body, Call, Layer, Method, Next, Status,
    codec::{Format, MemoryBudget},
};

use crate::{
    rules::{MessageRole, MethodRules, RulesError},
    violations,
};

/// A layer that checks each request by the rules of its message.
///
/// On a server, an invalid request is answered with the code `InvalidArgument`. On a channel, it is not sent. Each
/// message of a stream is checked. Methods without descriptors here, such as health checks, pass unchecked.
///
/// A message with rules is decoded once more, into a dynamic message. It is refused with the code `ResourceExhausted`
/// if two of them take more memory than [`message_memory_max`](frpc::MessageSettings::message_memory_max) allows. Other
/// messages cost a look-up of the method.
#[derive(Clone)]
pub struct Validation {
    rules: Arc<MethodRules>,
    checks_responses: bool,
}

impl Validation {
    /// Creates the layer from generated descriptors: the constants `FILE_DESCRIPTOR_SET` of packages with services.
    ///
    /// # Errors
    ///
    /// Fails if a rule does not compile, or if the descriptors are malformed.
    pub fn new<'a>(descriptors: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, RulesError> {
        Ok(Self { rules: Arc::new(MethodRules::read(descriptors)?), checks_responses: false })
    }

    /// Sets whether responses are checked as well, for example in tests. Default: no.
    ///
    /// An invalid response becomes the code `Internal` with the same details.
    #[must_use]
    pub fn responses(self, enable: bool) -> Self {
        Self { checks_responses: enable, ..self }
    }

    /// Checks the messages of one direction.
    fn checked(
        &self,
        method: &'static Method,
        format: Format,
        budget: MemoryBudget,
        role: MessageRole,
        body: Body,
    ) -> Result<Body, Status> {
        let Some(message) = self.rules.message(method, role) else { return Ok(body) };
        let (rules, message) = (Arc::clone(&self.rules), message.clone());
        let check = move |content: Bytes| match rules.check(&message, format, &content, budget) {
            Ok(()) => Ok(content),
            Err(failure) => Err(violations::status(method, role, failure)),
        };
        match body {
            Body::One(content) => check(content.into_bytes()).map(|content| Body::One(content.into())),
            Body::Many(contents) => Ok(Body::Many(contents.map_messages(check))),
            body => Ok(body),
        }
    }
}

impl Layer for Validation {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let (method, format, budget) = (call.method(), call.format(), call.memory_budget());
        let call = call.try_map_body(|body| self.checked(method, format, budget, MessageRole::Request, body))?;
        let answer = next.run(call).await?;
        if !self.checks_responses {
            return Ok(answer);
        }
        answer.try_map_body(|body| self.checked(method, format, budget, MessageRole::Response, body))
    }
}

impl fmt::Debug for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validation").field("checks_responses", &self.checks_responses).finish_non_exhaustive()
    }
}
