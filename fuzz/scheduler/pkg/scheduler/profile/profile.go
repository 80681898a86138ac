// Package profile has a framework for each profile.
package profile

import "k8s.io/kubernetes/pkg/scheduler/framework"

type Map map[string]framework.Framework
