//! Why a call of Connect's protocol failed, and how it is said.

use agent::words::{Code, Failure};
use axum::http::StatusCode;
use serde_json::{Value as Json, json};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RpcError {
    pub(crate) code: RpcCode,
    pub(crate) message: String,
}

/// Connect's codes, and one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RpcCode {
    InvalidArgument,
    Unauthenticated,
    PermissionDenied,
    NotFound,
    AlreadyExists,
    ResourceExhausted,
    Unimplemented,
    Internal,
    DeadlineExceeded,
    Canceled,
    /// The sandbox is gone: said by a proxy's answer, or by a stream that breaks off.
    Gone,
}

impl RpcCode {
    pub(crate) fn code_and_status(self) -> (&'static str, StatusCode) {
        match self {
            Self::InvalidArgument => ("invalid_argument", StatusCode::BAD_REQUEST),
            Self::Unauthenticated => ("unauthenticated", StatusCode::UNAUTHORIZED),
            Self::PermissionDenied => ("permission_denied", StatusCode::FORBIDDEN),
            Self::NotFound => ("not_found", StatusCode::NOT_FOUND),
            Self::AlreadyExists => ("already_exists", StatusCode::CONFLICT),
            Self::ResourceExhausted => ("resource_exhausted", StatusCode::TOO_MANY_REQUESTS),
            Self::Unimplemented => ("unimplemented", StatusCode::NOT_IMPLEMENTED),
            Self::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
            Self::DeadlineExceeded => ("deadline_exceeded", StatusCode::GATEWAY_TIMEOUT),
            // No name of a standard, and Connect's all the same.
            Self::Canceled => ("canceled", StatusCode::from_u16(499).unwrap_or(StatusCode::REQUEST_TIMEOUT)),
            Self::Gone => ("unavailable", StatusCode::BAD_GATEWAY),
        }
    }
}

impl RpcError {
    pub(crate) fn new(code: RpcCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn json(&self) -> Json {
        json!({ "code": self.code.code_and_status().0, "message": self.message })
    }
}

impl From<Failure> for RpcError {
    fn from(failure: Failure) -> Self {
        let code = match failure.code {
            Code::NotFound => RpcCode::NotFound,
            Code::Exists => RpcCode::AlreadyExists,
            Code::NotADirectory | Code::IsADirectory | Code::Invalid | Code::NotExecutable | Code::NoCwd => {
                RpcCode::InvalidArgument
            }
            Code::Denied | Code::Secret => RpcCode::PermissionDenied,
            Code::NoSpace | Code::TooMany => RpcCode::ResourceExhausted,
            Code::Unsupported => RpcCode::Unimplemented,
            Code::Cancelled => RpcCode::Canceled,
            Code::Ended | Code::Paused => RpcCode::Gone,
            Code::Closed | Code::Failed => RpcCode::Internal,
        };
        Self { code, message: failure.message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cancelled_has_the_status_of_connect() {
        let error = RpcError::from(Failure::new(Code::Cancelled, "asked to stop".to_owned()));
        assert_eq!((error.code.code_and_status().1.as_u16(), &error.json()["code"]), (499, &json!("canceled")));
    }
}
