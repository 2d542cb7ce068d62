use std::{iter, task::Waker};

use futures_util::{StreamExt, stream, stream::pending};

use super::*;

fn metadata() -> Metadata {
    let mut metadata = Metadata::new();
    metadata.insert("x-request-id", "7").unwrap();
    metadata.append("x-request-id", "8").unwrap();
    metadata.insert_bin("trace-bin", &b"\x00\xff"[..]).unwrap();
    metadata
}

fn decoded(content: EncodedMessage) -> Result<Envelope, Status> {
    Envelope::decode(content.into_bytes(), 8192)
}

fn message(text: &'static str) -> EncodedMessage {
    Bytes::from_static(text.as_bytes()).into()
}

#[test]
fn a_request_round_trips() {
    let timeout = Some(Duration::from_micros(1_500_000));
    let content = request(12, Format::Proto, timeout, &metadata(), message("hi"));
    let Ok(Envelope::Request { operation, format, head, message }) = decoded(content) else { panic!("no request") };
    assert_eq!((operation, format, &message[..]), (12, Format::Proto, &b"hi"[..]));
    assert_eq!((head.timeout, head.metadata), (timeout, metadata()));
}

#[test]
fn a_response_of_any_pieces_round_trips() {
    let large = Bytes::from(vec![7; 10_000]);
    for pieces in [message("hi"), large.clone().into(), EncodedMessage::Several(vec![large.clone(), large.slice(..5)])]
    {
        let len = pieces.len();
        let content = answer(&Metadata::new(), &metadata(), pieces);
        let Ok(Envelope::Answer { head, message, .. }) = decoded(content) else { panic!("no answer") };
        assert_eq!((head.metadata.len(), head.trailers, message.len()), (0, metadata(), len));
    }
}

#[test]
fn an_answer_with_only_a_message_is_found_by_its_start() {
    for len in [0, 2, 5000] {
        let content = bare_answer(Bytes::from(vec![7; len]).into()).into_bytes();
        assert_eq!(
            answer(&Metadata::new(), &Metadata::new(), EncodedMessage::from(Bytes::from(vec![7; len]))).into_bytes(),
            content
        );
        assert_eq!(bare_answer_message(content).unwrap(), vec![7; len]);
    }
    for other in [answer(&metadata(), &Metadata::new(), message("hi")).into_bytes(), describe(1), Bytes::new()] {
        assert_eq!(bare_answer_message(other.clone()), Err(other));
    }
}

#[test]
fn messages_round_trip_in_order_without_copies() {
    let large = Bytes::from(vec![7; 10_000]);
    let all = ["a".into(), Bytes::new(), large.clone(), "b".into(), "c".into()];
    for mut stream in [handed_over(all.clone()), written(all.clone())] {
        let mut messages = OutgoingBatch::new(10_010);
        assert!(matches!(filled(&mut messages, &mut stream), Poll::Ready(Some(Ok(())))));
        let data: Vec<_> = messages.take().into();
        assert_eq!(data.iter().map(Content::len).collect::<Vec<_>>(), [10, 10_005, 11]);
        assert_eq!(data.into_iter().flat_map(read_messages).collect::<Vec<_>>(), all);
        assert!(messages.take().is_empty());
    }
}

#[test]
fn small_messages_share_data_up_to_the_limit() {
    let all = ["a", "b", "c", "too long for the limit", "d"].map(Bytes::from);
    for mut stream in [handed_over(all.clone()), written(all.clone())] {
        let mut messages = OutgoingBatch::new(11);
        assert!(matches!(filled(&mut messages, &mut stream), Poll::Ready(Some(Ok(())))));
        let data: Vec<_> = messages.take().into();
        assert_eq!(data.iter().map(Content::len).collect::<Vec<_>>(), [11, 6, 27, 6]);
        assert_eq!(data.into_iter().flat_map(read_messages).collect::<Vec<_>>(), all);
    }
}

#[test]
fn ready_messages_are_batched_up_to_the_limit() {
    let message = Bytes::from(vec![7; 1000]);
    for mut stream in [handed_over(vec![message.clone(); 40]), written(vec![message; 40])] {
        let mut messages = OutgoingBatch::new(1 << 20);
        let mut lens = Vec::new();
        let mut is_over = false;
        while !is_over {
            is_over = matches!(filled(&mut messages, &mut stream), Poll::Ready(Some(Ok(()))));
            lens.extend(messages.take().into_iter().map(|data| data.len() / 1000));
        }
        assert_eq!(lens, [16, 16, 8]);
    }
    let mut none_yet = Streaming::new(pending());
    assert!(filled(&mut OutgoingBatch::new(1 << 20), &mut none_yet).is_pending());
    let one = Bytes::from("one");
    let mut one_yet = Streaming::new(stream::iter([Ok(one.clone())]).chain(pending()));
    let mut messages = OutgoingBatch::new(1 << 20);
    assert!(matches!(filled(&mut messages, &mut one_yet), Poll::Ready(None)), "it does not wait for others");
    assert_eq!(messages.take().into_iter().flat_map(read_messages).collect::<Vec<_>>(), [one]);
}

fn filled(messages: &mut OutgoingBatch, stream: &mut Streaming<Bytes>) -> PollNext<()> {
    messages.poll_fill(&mut Context::from_waker(Waker::noop()), stream)
}

/// A stream with each message in its own buffer.
fn handed_over(messages: impl IntoIterator<Item = Bytes>) -> Streaming<Bytes> {
    Streaming::from_iter(messages)
}

/// A stream that writes its messages directly into the send buffer.
fn written(messages: impl IntoIterator<Item = Bytes>) -> Streaming<Bytes> {
    Streaming::from_source(Written(messages.into_iter().collect()))
}

struct Written(VecDeque<Bytes>);

impl packed::BatchSource<Bytes> for Written {
    fn poll_next(&mut self, _: &mut Context<'_>) -> PollNext<Bytes> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }

    fn poll_into(
        &mut self,
        _: &mut Context<'_>,
        out: &mut Vec<u8>,
        full: usize,
        _: packed::MessagePrefix,
    ) -> PollNext<Option<Bytes>> {
        while let Some(message) = self.0.pop_front() {
            if message.len() > packed::COPIED_LEN_MAX {
                return Poll::Ready(Some(Ok(Some(message))));
            }
            packed::put(out, &message);
            if out.len() >= full {
                return Poll::Ready(Some(Ok(None)));
            }
        }
        Poll::Ready(None)
    }
}

fn read_messages(data: Content) -> Vec<Bytes> {
    let Ok(StreamFrame::Messages(mut messages)) = StreamFrame::decode(data.into_bytes(), 0) else {
        panic!("no messages")
    };
    iter::from_fn(|| messages.next()).map(Result::unwrap).collect()
}

#[test]
fn stream_data_round_trips() {
    let opening = open(12, Format::Proto, Some(Duration::from_secs(1)), &metadata());
    let OpenFrame { operation, format, head: fields } = parse_open(&opening, 8192).unwrap().unwrap();
    assert_eq!((operation, format, fields.timeout), (12, Format::Proto, Some(Duration::from_secs(1))));
    assert_eq!(fields.metadata, metadata());
    assert!(parse_open(&Bytes::from_static(&[9, 12]), 0).is_none(), "one of a plain peer");
    assert!(
        matches!(StreamFrame::decode(head(&metadata()), 8192), Ok(StreamFrame::Head(fields)) if fields.metadata == metadata())
    );
    assert!(
        matches!(StreamFrame::decode(end(&metadata()), 8192), Ok(StreamFrame::End(fields)) if fields.trailers == metadata())
    );
    assert!(is_end(&end(&metadata())) && !is_end(&opening));
    assert!(matches!(StreamFrame::decode(Bytes::from_static(&[99]), 0), Ok(StreamFrame::Unknown)));
}

#[test]
fn a_failure_is_truncated_to_the_limit() {
    let status = Status::with_details_and_metadata(Code::NotFound, "no such order", vec![1; 300], metadata());
    let read = |limit| match Envelope::decode(failure(&status.clone().into(), limit, 8192), 8192) {
        Ok(Envelope::Failure(head)) => head.into_status(),
        other => panic!("{other:?}"),
    };
    let whole = read(10_000);
    assert_eq!((whole.code(), whole.message()), (Code::NotFound, "no such order"));
    assert_eq!((whole.details(), whole.metadata()), (&[1; 300][..], &metadata()));
    let short = read(100);
    assert_eq!((short.code(), short.message(), short.details().len()), (Code::NotFound, "no such order", 0));
    assert_eq!(read(5).code(), Code::Unknown);
}

#[test]
fn a_failure_with_code_ok_becomes_unknown() {
    let content = failure(&Status::new(Code::Ok, "fine").into(), 100, 0);
    let Ok(Envelope::Failure(head)) = Envelope::decode(content, 100) else { panic!("no failure") };
    assert_eq!(head.into_status().code(), Code::Unknown);
}

#[test]
fn metadata_beyond_the_limit_is_resource_exhausted() {
    let len = metadata_len(&metadata());
    let content = request(12, Format::Polyglot, None, &metadata(), message("hi")).into_bytes();
    assert!(Envelope::decode(content.clone(), len).is_ok());
    let status = Envelope::decode(content, len - 1).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("metadata_len_max"), "{status}");
}

#[test]
fn truncated_requests_are_invalid_arguments() {
    let content = request(12, Format::Polyglot, Some(Duration::ZERO), &metadata(), message("")).into_bytes();
    for len in 0..content.len() {
        let status = Envelope::decode(content.slice(..len), 8192).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{len}");
    }
}

#[test]
fn unknown_fields_are_skipped_and_unknown_kinds_rejected() {
    let with_unknown = [&[ANSWER, 0, 0, 0, 6, 99, 0, 0, 0, 1, 5][..], b"hi"].concat();
    assert!(matches!(Envelope::decode(with_unknown.into(), 0), Ok(Envelope::Answer { .. })));
    for content in [&[5, 0, 0, 0, 0][..], &[REQUEST, 0, 12, 9, 0, 0, 0, 0]] {
        let status = Envelope::decode(Bytes::copy_from_slice(content), 0).unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{content:?}");
    }
}

#[test]
fn a_describe_request_contains_the_operation() {
    assert_eq!(&describe(12)[..], [4, 0, 0, 0, 0, 0, 12]);
    assert!(matches!(Envelope::decode(describe(12), 0), Ok(Envelope::Describe { operation: 12 })));
    assert!(!is_answer(&describe(12)));
    assert_eq!(Envelope::decode(describe(12).slice(..6), 0).unwrap_err().code(), Code::InvalidArgument);
}

#[test]
fn invalid_metadata_is_rejected() {
    for entry in [&b"\0\x02\xc3\xa4x"[..], b"\0\x09grpc-fakex", b"\0\x01a\n"] {
        let mut content = vec![REQUEST, 0, 12, 0];
        with_head(&mut content, |out| put_field(out, METADATA, entry));
        assert_eq!(Envelope::decode(content.into(), 8192).unwrap_err().code(), Code::InvalidArgument);
    }
}

#[test]
fn encoders_reserve_the_exact_capacity() {
    let mut metadata = Metadata::new();
    metadata.append("a", "1").unwrap();
    metadata.append_bin("b-bin", [2; 9]).unwrap();
    let compressed = CompressionHeader::decode(&mut &[1, 0, 0, 0, 7][..]);
    assert!(compressed.is_some());
    for metadata in [Metadata::new(), metadata] {
        for timeout in [None, Some(Duration::from_secs(1))] {
            for compressed in [None, compressed] {
                let message = EncodedMessage::from(Bytes::from_static(b"message"));
                let outgoing = || OutgoingMessage { compressed, message: message.clone() };
                let len = head_len(REQUEST_LEN + timeout.map_or(0, |_| TIMEOUT_LEN), &[&metadata], compressed);
                let request = request(1, Format::Polyglot, timeout, &metadata, outgoing());
                assert_eq!(request.len(), len + message.len());
                let len = head_len(ANSWER_LEN, &[&metadata, &metadata], compressed);
                assert_eq!(answer(&metadata, &metadata, outgoing()).len(), len + message.len());
            }
        }
    }
}

#[test]
fn causes_come_back_and_a_status_alone_has_none() {
    let causes = [
        ServerCause::Refused(RefusalReason::Busy),
        ServerCause::Refused(RefusalReason::Expired),
        ServerCause::Refused(RefusalReason::Draining),
        ServerCause::Refused(RefusalReason::TooLarge { announced: u32::MAX, limit: 7 }),
        ServerCause::TooManyCalls { limit: 3 },
        ServerCause::AnswerTooLarge { len: 9, limit: 8 },
    ];
    for cause in causes {
        // The text may have to go, but never the cause.
        for limit in [u32::MAX, 65] {
            let content = failure(&cause.into(), limit, 8192);
            let Ok(Envelope::Failure(head)) = decoded(content.into()) else { panic!("no failure") };
            assert_eq!(head.cause, Some(cause));
            let status = head.into_server_status();
            assert_eq!(status.to_string(), Status::from(CallError::from(cause)).to_string());
        }
        // A handler that forwards the status of its own call.
        let status: Status = CallError::from(cause).into();
        let content = failure(&status.into(), u32::MAX, 8192);
        let Ok(Envelope::Failure(head)) = decoded(content.into()) else { panic!("no failure") };
        assert!(head.into_server_status().call_error().is_none());
    }
}
