//! Services of `go/interop.proto`, with the behavior described in the README of `go`.

use std::time::Duration;

use frpc::{Request, Response, Status, Streaming};
use tokio::time::sleep;

use schema::{Blob, Delay, Number, Rich, Series, Summary, Text, interop_server, second_server};

/// Generated code.
pub mod schema {
    #![allow(missing_docs, reason = "the schema has none")]
    frpc::include_proto!("interop");
}

/// Implements both services.
#[derive(Clone, Copy, Debug, Default)]
pub struct Service;

impl interop_server::Interop for Service {
    async fn echo(&self, request: Request<Rich>) -> Result<Response<Rich>, Status> {
        Ok(request.into_inner().into())
    }

    async fn payload(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        Ok(request.into_inner().into())
    }

    async fn fail(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        Err(Status::unknown(request.into_inner().text))
    }

    async fn slow(&self, request: Request<Delay>) -> Result<Response<Text>, Status> {
        let Delay { milliseconds, text } = request.into_inner();
        sleep(Duration::from_millis(milliseconds.into())).await;
        Ok(Text { text }.into())
    }

    async fn hangup(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        Err(Status::aborted(request.into_inner().text).closing_connection())
    }

    async fn numbers(&self, request: Request<Series>) -> Result<Response<Streaming<Number>>, Status> {
        let Series { start, count, fail_with } = request.into_inner();
        let (sender, numbers) = Streaming::channel(16);
        tokio::spawn(async move {
            for value in (start..).take(count as usize) {
                if sender.send(Number { value }).await.is_err() {
                    return;
                }
            }
            if !fail_with.is_empty() {
                sender.fail(Status::unknown(fail_with)).await;
            }
        });
        Ok(numbers.into())
    }

    async fn total(&self, request: Request<Streaming<Number>>) -> Result<Response<Summary>, Status> {
        let (mut numbers, mut summary) = (request.into_inner(), Summary::default());
        while let Some(Number { value }) = numbers.message().await? {
            if value < 0 {
                return Err(Status::invalid_argument(format!("negative: {value}")));
            }
            summary.sum += value;
            summary.count += 1;
        }
        Ok(summary.into())
    }

    async fn talk(&self, request: Request<Streaming<Text>>) -> Result<Response<Streaming<Text>>, Status> {
        let (sender, answers) = Streaming::channel(16);
        let mut texts = request.into_inner();
        tokio::spawn(async move {
            loop {
                let answer = match texts.message().await {
                    Ok(Some(Text { text })) if text != "stop" => Text { text: format!("re: {text}") },
                    Ok(_) => return,
                    Err(status) => return sender.fail(status).await,
                };
                if sender.send(answer).await.is_err() {
                    return;
                }
            }
        });
        Ok(answers.into())
    }
}

impl second_server::Second for Service {
    async fn greet(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        Ok(Text { text: format!("hello {}", request.into_inner().text) }.into())
    }

    async fn tail(&self, request: Request<Text>) -> Result<Response<Streaming<Text>>, Status> {
        let characters =
            request.into_inner().text.chars().map(|character| Text { text: character.into() }).collect::<Vec<_>>();
        Ok(Streaming::from_iter(characters).into())
    }
}
