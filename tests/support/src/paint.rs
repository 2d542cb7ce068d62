//! A service with enums, lists and maps in its messages.

use frpc::{Request, Response, Status, Streaming};

use self::schema::painter_server::Painter;
pub use self::schema::{Wall, painter_server::PainterServer};

/// Generated code.
pub mod schema {
    #![allow(missing_docs, unreachable_pub, reason = "it is generated for any use")]
    frpc::include_proto!("paint");
}

/// Echoes each message. Of a request stream, echoes the last message.
#[derive(Debug)]
pub struct Echo;

impl Painter for Echo {
    async fn paint(&self, request: Request<Wall>) -> Result<Response<Wall>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn paint_all(&self, request: Request<Streaming<Wall>>) -> Result<Response<Wall>, Status> {
        let (mut walls, mut last) = (request.into_inner(), Wall::default());
        while let Some(wall) = walls.message().await? {
            last = wall;
        }
        Ok(Response::new(last))
    }
}
