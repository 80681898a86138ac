//! What is read at the sites of the API server.

gotrace::values! {
    /// A value read at a site.
    pub enum Value;

    /// Length of the resource's name: 4 for `pods`. Strings are read for resources of this length alone.
    ResourceLength: Number,
    /// Type of what describes the request.
    RequestType: Name,
    /// What is done: `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    Operation: Text,
    /// The resource.
    Resource: Text,
    /// Length of the subresource's name: 0 for an object itself.
    SubresourceLength: Number,
    /// Name of the user who asked.
    User: Text,
    /// Length of the step's name.
    StepLength: Number,
    /// How long the step or the webhook's call took, nanoseconds.
    Elapsed: Number,
    /// Whether the request is refused.
    Rejected: Flag,
    /// Name of the webhook.
    Webhook: Text,
    /// HTTP status that its call ended with: 0 if there was none.
    Code: Number,
    /// The goroutine that started the one of the step, or the one that the webhook is called on.
    Parent: Number,
    /// Key of the object in the storage, such as `/pods/default/web-0`.
    Key: Text,
    /// Type of the object.
    ObjectType: Name,
    /// Its UID.
    ObjectUid: Text,
    /// UID of its first owner.
    OwnerUid: Text,
    /// Its namespace.
    Namespace: Text,
    /// Its name.
    Name: Text,
    /// Length of its resource version: 0 unless it is stored, as after a trial.
    VersionLength: Number,
    /// Whether a patch created its object.
    Created: Flag,
    /// Name of the client that the object's fields are managed by.
    Manager: Text,
    /// 1 if the object was not stored.
    Failed: Number,
}
