//! What is read at the sites of controllers and of requests.

client_go::request_values! {
    /// A value read at a site.
    pub enum Value;

    /// The controller's name, as its metrics and logs have it.
    Controller: Text,
    /// The strings that the request is made of: namespace and name.
    Request: Texts,
    /// Whether the reconciler asks to be called again.
    Requeue: Flag,
    /// After how long it asks to be called again, nanoseconds.
    RequeueAfter: Signed,
    /// 1 if it returned an error.
    Failed: Number,
    /// The error's message, or its type where that has no message that can be read.
    Message: Text,
    /// The message of an answer of the API server, or the error's type if it is another error.
    StatusMessage: Text,
}
