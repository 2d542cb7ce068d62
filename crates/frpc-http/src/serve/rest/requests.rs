//! A body with several JSON objects: the messages of a request stream.

use std::{future::poll_fn, pin::Pin};

use bytes::{Buf, Bytes, BytesMut};
use frpc::{Status, Streaming};
use frpc_json::EndFinder;
use frpc_rest::{RequestParts, RouteCall};
use futures_util::stream;
use http::request::Parts;

use crate::serve::{
    request_memory::RequestMemory,
    requests::{RequestBody, body_error},
    site::ServeContext,
};

/// Returns the messages of a body. Each is a JSON object; white space may separate them.
pub(super) fn messages<B: RequestBody>(
    site: &ServeContext,
    call: &RouteCall,
    parts: &Parts,
    body: B,
) -> Streaming<Bytes> {
    let reader = ObjectReader {
        body,
        call: call.clone(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        is_strict: site.settings.strict_json,
        received: BytesMut::new(),
        end: EndFinder::default(),
        len_max: site.settings.message_len_max,
        is_over: false,
        holding: RequestMemory::new(&site.account),
    };
    Streaming::new(stream::try_unfold(reader, |mut reader| async move {
        Ok(reader.next().await?.map(|message| (message, reader)))
    }))
}

struct ObjectReader<B> {
    body: B,
    call: RouteCall,
    query: String,
    is_strict: bool,
    /// Received bytes, from the start of an object.
    received: BytesMut,
    end: EndFinder,
    len_max: usize,
    is_over: bool,
    holding: RequestMemory,
}

impl<B: RequestBody> ObjectReader<B> {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if self.end.examined_len() == 0 {
                let blank = self.received.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                self.received.advance(blank);
                if self.received.first().is_some_and(|first| *first != b'{') {
                    return Err(Status::invalid_argument("the body is not a sequence of JSON objects"));
                }
            }
            if self.end.is_found(&self.received) {
                let object = self.received.split_to(self.end.examined_len()).freeze();
                self.end = EndFinder::default();
                let request = RequestParts {
                    query: &self.query,
                    body: object,
                    is_strict: self.is_strict,
                    ..RequestParts::default()
                };
                let message = self.call.message(request);
                return message.map(Some).map_err(|error| Status::invalid_argument(error.to_string()));
            }
            if self.received.len() > self.len_max {
                let len_max = self.len_max;
                return Err(Status::resource_exhausted(format!("the message exceeds the limit of {len_max} bytes")));
            }
            if self.is_over {
                return match self.received.is_empty() {
                    true => Ok(None),
                    false => Err(Status::invalid_argument("the body ends within a JSON object")),
                };
            }
            match poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await {
                Some(Ok(frame)) => {
                    // Trailers of a request have no meaning here.
                    if let Ok(data) = frame.into_data() {
                        self.received.extend_from_slice(&data);
                        self.holding.set(self.received.len())?;
                    }
                }
                Some(Err(error)) => return Err(body_error(&*error.into())),
                None => self.is_over = true,
            }
        }
    }
}
