//! A thread with a runtime of its own, for work whose caller may have no runtime.

use std::io;
use tokio::sync::oneshot;

/// Runs the future that `work` makes on a new thread, in a runtime of its own. `work` gets the
/// sender of the answer that is returned; where there is no runtime, the answer is `unable`.
///
/// # Errors
/// `unable`, if there is no thread.
pub fn own_thread<T, E, F>(
    name: &str,
    unable: fn(&io::Error) -> E,
    work: impl FnOnce(oneshot::Sender<Result<T, E>>) -> F + Send + 'static,
) -> Result<oneshot::Receiver<Result<T, E>>, E>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future<Output = ()>,
{
    let (told, answer) = oneshot::channel();
    let body = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work(told)),
        // An error means that nobody waits for the answer any more.
        Err(error) => drop(told.send(Err(unable(&error)))),
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map(|_| answer).map_err(|error| unable(&error))
}
