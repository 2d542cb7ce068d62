//! A layer for clients that check metadata.

use frpc::{Answer, Call, Layer, Next, Status};

/// Sends the metadata of calls back, in front of the answer and behind it.
pub(crate) struct Echo;

impl Layer for Echo {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let metadata = call.head().metadata().clone();
        let mut answer = next.run(call).await?;
        if !metadata.is_empty() {
            *answer.trailers_mut() = metadata.clone();
            *answer.metadata_mut() = metadata;
        }
        Ok(answer)
    }
}
