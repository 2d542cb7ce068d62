//! Status codes in each protocol, and the HTTP statuses that belong to them.

use frpc::Code;
use http::StatusCode;

/// The name of a code in Connect and Twirp, and its HTTP status in each.
struct CodeMapping {
    code: Code,
    name: &'static str,
    connect_http: u16,
    twirp_http: u16,
}

const fn row(code: Code, name: &'static str, connect_http: u16, twirp_http: u16) -> CodeMapping {
    CodeMapping { code, name, connect_http, twirp_http }
}

/// One row per code, in the order of their numbers, starting at 1.
static TABLE: [CodeMapping; 16] = [
    row(Code::Cancelled, "canceled", 499, 408),
    row(Code::Unknown, "unknown", 500, 500),
    row(Code::InvalidArgument, "invalid_argument", 400, 400),
    row(Code::DeadlineExceeded, "deadline_exceeded", 504, 408),
    row(Code::NotFound, "not_found", 404, 404),
    row(Code::AlreadyExists, "already_exists", 409, 409),
    row(Code::PermissionDenied, "permission_denied", 403, 403),
    row(Code::ResourceExhausted, "resource_exhausted", 429, 429),
    row(Code::FailedPrecondition, "failed_precondition", 400, 412),
    row(Code::Aborted, "aborted", 409, 409),
    row(Code::OutOfRange, "out_of_range", 400, 400),
    row(Code::Unimplemented, "unimplemented", 501, 501),
    row(Code::Internal, "internal", 500, 500),
    row(Code::Unavailable, "unavailable", 503, 503),
    row(Code::DataLoss, "data_loss", 500, 500),
    row(Code::Unauthenticated, "unauthenticated", 401, 401),
];

/// Twirp codes without a counterpart in other protocols. The Twirp specification spells `data_loss` as `dataloss`.
/// Generated Twirp clients reject that spelling, so it is only read and never written.
const TWIRP_ONLY: [(&str, Code); 3] =
    [("malformed", Code::InvalidArgument), ("bad_route", Code::Unimplemented), ("dataloss", Code::DataLoss)];

fn mapping_of(code: Code) -> &'static CodeMapping {
    // A failed call must not carry `Ok`. If a handler returns it anyway, callers see an unknown error.
    let code = if code == Code::Ok { Code::Unknown } else { code };
    &TABLE[usize::from(u8::from(code)) - 1]
}

fn status(number: u16) -> StatusCode {
    StatusCode::from_u16(number).expect("the table has statuses of HTTP")
}

/// Returns the name of a code in Connect and Twirp.
pub(crate) fn name(code: Code) -> &'static str {
    mapping_of(code).name
}

/// Returns the code with this name in Connect.
pub(crate) fn from_name(name: &str) -> Option<Code> {
    TABLE.iter().find(|row| row.name == name).map(|row| row.code)
}

/// Returns the code with this name in Twirp.
pub(crate) fn from_twirp_name(name: &str) -> Option<Code> {
    from_name(name).or_else(|| TWIRP_ONLY.iter().find(|(only, _)| *only == name).map(|(_, code)| *code))
}

/// Returns the HTTP status of a unary Connect call that fails with this code.
pub(crate) fn connect_http_status(code: Code) -> StatusCode {
    status(mapping_of(code).connect_http)
}

/// Returns the HTTP status of a Twirp call that fails with this code.
pub(crate) fn twirp_http_status(code: Code) -> StatusCode {
    status(mapping_of(code).twirp_http)
}

/// Returns the code for a response without a gRPC or Connect error, such as one of a proxy. Connect uses the table of
/// gRPC.
pub(crate) fn from_http_status(status: StatusCode) -> Code {
    match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// Returns the code for a response without a Twirp error, such as one of a proxy. The table is that of Twirp.
pub(crate) fn from_http_status_of_twirp(status: StatusCode) -> Code {
    match status.as_u16() {
        300..=400 => Code::Internal,
        429 => Code::ResourceExhausted,
        _ => from_http_status(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered_by_code() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(usize::from(u8::from(row.code)), index + 1);
            assert!(std::ptr::eq(mapping_of(row.code), row));
        }
        assert_eq!(name(Code::Ok), "unknown");
    }

    #[test]
    fn code_names_round_trip() {
        for row in &TABLE {
            let name = name(row.code);
            assert_eq!((from_name(name), from_twirp_name(name)), (Some(row.code), Some(row.code)));
        }
        assert_eq!(from_twirp_name("bad_route"), Some(Code::Unimplemented));
        assert_eq!(from_twirp_name("malformed"), Some(Code::InvalidArgument));
        assert_eq!((name(Code::DataLoss), from_twirp_name("dataloss")), ("data_loss", Some(Code::DataLoss)));
        for other in ["", "ok", "Canceled", "cancelled"] {
            assert_eq!((from_name(other), from_twirp_name(other)), (None, None));
        }
    }

    #[test]
    fn codes_map_to_http_statuses() {
        assert_eq!(connect_http_status(Code::Cancelled).as_u16(), 499);
        assert_eq!(connect_http_status(Code::FailedPrecondition), StatusCode::BAD_REQUEST);
        assert_eq!(twirp_http_status(Code::FailedPrecondition), StatusCode::PRECONDITION_FAILED);
        assert_eq!(twirp_http_status(Code::DeadlineExceeded), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(from_http_status(StatusCode::NOT_FOUND), Code::Unimplemented);
        assert_eq!(from_http_status(StatusCode::BAD_GATEWAY), Code::Unavailable);
        assert_eq!(from_http_status(StatusCode::IM_A_TEAPOT), Code::Unknown);
    }
}
